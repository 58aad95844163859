"""`python -m bench.keys`: eight settlers at once, of 500 tasks each whose lock keys others wait for, beside the same
without keys, in turn; prints the ratio of their times, and how many keys have no head a second later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from bench.size import sized
from bench.tidied import vacuum
from celeriac import local
from celeriac.dispatch import claim
from celeriac.dispatch.claim import Held
from celeriac.enqueue.insert import enqueue
from celeriac.enqueue.rows import NewTask
from celeriac.run import start
from celeriac.settle import write
from celeriac.settle.outcome import Outcome, Started
from celeriac.store.connections import Database
from celeriac.store.migrate import migrate

SETTLERS, KEYS, ROUNDS = 8, sized(500, 5), sized(9, 1)

TABLES = ", ".join(f"celeriac.{room}" for room in ("tasks", "ready", "behind", "locks", "looks", "tickets", "history"))

HEADLESS = """
SELECT count(DISTINCT b.lock_key) FROM celeriac.behind b
WHERE NOT EXISTS (SELECT FROM celeriac.locks l WHERE l.lock_key = b.lock_key)"""

HEADS = "SELECT count(*) FROM celeriac.locks"


def main() -> None:
    with local.join_temporary() as stack:
        database = Database(stack.database_url, pool_size=SETTLERS)
        migrate(database.engine)
        ratios = []
        for _ in range(ROUNDS):
            without, keyed = settled(database, keyed=False), settled(database, keyed=True)
            ratios.append(keyed / without)
            time.sleep(1)
            with database.statement() as connection:
                heads, headless = (connection.exec_driver_sql(asked).scalar_one() for asked in (HEADS, HEADLESS))
            print(
                f"without keys {without:.2f} s, with {keyed:.2f} s, ratio {ratios[-1]:.2f}; "
                f"{heads:,} keys have a head, {headless} have none",
                flush=True,
            )
        print(f"ratio {median(ratios):.2f}")
        database.dispose()


def settled(database: Database, *, keyed: bool) -> float:
    """Seconds until the last settler is through; the tasks that waited for its keys are heads then."""
    with database.statement() as connection:
        connection.exec_driver_sql(f"TRUNCATE {TABLES}")
    for waits in (False, True):
        with database.transaction() as connection:
            enqueue(connection, [new_task(i, waits, keyed) for i in range(SETTLERS * KEYS)])
    tickets = [begun(database, str(settler)) for settler in range(SETTLERS)]
    vacuum(database)
    line = threading.Barrier(SETTLERS + 1)
    with ThreadPoolExecutor(SETTLERS) as settlers:
        under_way = [settlers.submit(settle, database, ticket, line) for ticket in tickets]
        line.wait()
        began = time.perf_counter()
        assert sum(settler.result() for settler in under_way) == SETTLERS * KEYS
        return time.perf_counter() - began


def new_task(i: int, waits: bool, keyed: bool) -> NewTask:
    key = f"key {i}" if keyed else None
    name = f"{'next' if waits else 'first'} {i}"
    return NewTask(task_id=name, role="work", args="[]", kwargs="{}", account=str(i % SETTLERS), lock_key=key)


def begun(database: Database, account: str) -> list[Started]:
    """The account's first tasks, claimed and started."""
    token = claim.fresh_token()
    with database.transaction() as connection:
        taken = claim.claim(connection, "work", {account: KEYS})
        claim.hold(connection, "work", [Held(token, taken)])
        ids = [task.id for task in taken]
        return start.start(connection, "work", ids, token, worker_id="bench", pid=1)


def settle(database: Database, tasks: Sequence[Started], line: threading.Barrier) -> int:
    outcomes = [Outcome(task=task, status="completed", retry_count=0, tries=0) for task in tasks]
    line.wait()
    with database.transaction() as connection:
        return len(write.settle(connection, outcomes, "bench"))


if __name__ == "__main__":
    main()
