"""`python -m bench.backlog`: what selecting 60 tasks costs at a small backlog and at large ones of four shapes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from sqlalchemy import text

from bench.size import sized
from celeriac import local
from celeriac.database import Database
from celeriac.dispatcher import Dispatcher
from celeriac.migrate import migrate
from celeriac.roles import Role

PASSES = sized(40, 4)
BUILD = Role(name="build", batch_size=60, window=1_000_000, eager=False, chunk=1)

READY = """
INSERT INTO worker_tasks (task_id, role, account, priority)
SELECT 'ready-' || i, 'build', lpad((i % :accounts)::text, 6, '0'), i % 3 FROM generate_series(1, :rows) i"""
BEHIND = """
INSERT INTO worker_tasks (task_id, role, account, lock_key, waits_for, status, token, claimed_at)
SELECT 'lock-' || i, 'build', '000001', 'held', CASE WHEN i > 1 THEN 'lock' END,
    CASE WHEN i = 1 THEN 'claimed' ELSE 'pending' END, CASE WHEN i = 1 THEN gen_random_uuid() END,
    CASE WHEN i = 1 THEN now() END
FROM generate_series(1, :rows) i"""
LATER = """
INSERT INTO worker_tasks (task_id, role, account, waits_for, scheduled_for)
SELECT 'later-' || i, 'build', lpad((i % 1000)::text, 6, '0'), 'time', now() + interval '1 day'
FROM generate_series(1, :rows) i"""

FEW, MANY, ACCOUNTS = sized(10_000, 500), sized(1_000_000, 2_000), sized(100_000, 1_000)
SOME = [(READY, {"rows": FEW, "accounts": 1000})]
HELD, NOT_DUE = {"rows": sized(100_000, 1_000)}, {"rows": sized(500_000, 1_000)}

SHAPES = {
    f"{FEW:,} ready, 1,000 accounts": SOME,
    f"{MANY:,} ready, 1,000 accounts": [(READY, {"rows": MANY, "accounts": 1000})],
    f"{MANY:,} ready, {ACCOUNTS:,} accounts": [(READY, {"rows": MANY, "accounts": ACCOUNTS})],
    f"+ {HELD['rows']:,} behind one lock": [*SOME, (BEHIND, HELD)],
    f"+ {NOT_DUE['rows']:,} not due": [*SOME, (LATER, NOT_DUE)],
}


class NoRedis:
    """The passes' cost in Postgres is what is measured."""

    is_open = True


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="celeriac-bench-") as folder, local.join(Path(folder)) as stack:
        database = Database(stack.database_url)
        migrate(database.engine)
        cost = {shape: measure(database, fill) for shape, fill in SHAPES.items()}
        database.dispose()
    first = next(iter(cost.values()))
    for shape, seconds in cost.items():
        print(f"{shape:36}{seconds * 1000:8.2f} ms a pass{seconds / first:8.2f}")


def measure(database: Database, fill: list[tuple[str, dict[str, int]]]) -> float:
    """The median seconds of a pass that claims 60."""
    with database.statement() as connection:
        connection.execute(text("TRUNCATE worker_tasks, batchers, passes"))
        for statement, given in fill:
            connection.execute(text(statement), given)
        connection.execute(text("ANALYZE worker_tasks"))
    dispatcher = Dispatcher(database, NoRedis(), "bench")  # type: ignore[arg-type]
    return median(_timed(dispatcher) for _ in range(PASSES))


def _timed(dispatcher: Dispatcher) -> float:
    began = time.perf_counter()
    done = dispatcher.run_pass(BUILD)
    assert sum(len(t.ids) for t in done.tickets) == BUILD.batch_size, done
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
