"""What the races' two sides do; importable, so that they can be processes as well as threads.

Each gets the database and its number, waits at the line for the other, and returns what it saw. What it raises fails
the race.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, text

from celeriac.dispatch import promote
from celeriac.enqueue.insert import enqueue
from celeriac.enqueue.rows import NewTask
from celeriac.operate import cancel
from celeriac.run import start
from celeriac.settle import write
from celeriac.settle.outcome import Outcome, Started
from celeriac.store.connections import Database
from tests.postgres.stages import claimed

#: Whoever holds this advisory lock keeps the racers at the line.
LINE = 4711

#: Each side's share of a race's 1,000 rounds.
ROUNDS = 500

KEYS = ("one", "two", "three")

#: Two runs of one key at a time cannot both be in here.
INSIDE = "CREATE TABLE inside (lock_key text PRIMARY KEY)"


@contextmanager
def racing(url: str) -> Iterator[Database]:
    database = Database(url)
    try:
        with database.statement() as connection:
            connection.exec_driver_sql(f"SELECT pg_advisory_lock_shared({LINE}), pg_advisory_unlock_shared({LINE})")
        yield database
    finally:
        database.dispose()


def task(role: str = "work", **options: object) -> NewTask:
    return NewTask(task_id=str(uuid.uuid4()), role=role, args="[]", kwargs="{}", **options)  # type: ignore[arg-type]


def claims(url: str, side: int) -> list[tuple[int, str]]:
    """Claims the same account's best rows again and again: the ids, and under which token."""
    got: list[tuple[int, str]] = []
    with racing(url) as database:
        for _ in range(ROUNDS):
            ids, token = claimed(database, n=2)
            got += [(row, token) for row in ids]
    return got


def locks(url: str, side: int) -> int:
    """Enqueues for a few keys, and runs what it can get of them; how many runs."""
    chance, runs = random.Random(side), 0
    with racing(url) as database:
        for _ in range(ROUNDS):
            with database.statement() as connection:
                enqueue(connection, [task(lock_key=chance.choice(KEYS))])
            runs += run_one(database, again=chance.random() < 0.2)
    return runs


def run_one(database: Database, *, again: bool = False) -> int:
    """Claims, starts and settles one task, if there is one to claim."""
    with database.transaction() as connection:
        promote.promote_due(connection, "work", 10)
    ids, token = claimed(database)
    with database.statement() as connection:
        started = start.start(connection, "work", ids, token, worker_id="racer", pid=1)
        for one in started:
            go_through(connection, one)
    with database.transaction() as connection:
        write.settle(connection, [outcome(one, again=again) for one in started], "racer")
    return len(started)


def go_through(connection: Connection, one: Started) -> None:
    given = {"key": one.lock_key}
    connection.execute(text("INSERT INTO inside VALUES (:key)"), given)
    connection.execute(text("DELETE FROM inside WHERE lock_key = :key"), given)


def outcome(one: Started, *, again: bool) -> Outcome:
    if again:
        return Outcome(task=one, status="pending", kind="retry", delay=0.0, retry_count=one.retry_count + 1)
    return Outcome(task=one, status="completed")


def unique_keys(url: str, side: int) -> tuple[int, int]:
    """Enqueues one unique key; whoever has a new row cancels it. How many were new, and how many were not."""
    new = 0
    with racing(url) as database:
        for _ in range(ROUNDS):
            with database.statement() as connection:
                (receipt,) = enqueue(connection, [task(unique_key="u")])
            if receipt.is_new:
                with database.transaction() as connection:
                    assert cancel.cancel(connection, receipt.task_id, by="racer", why="") == "cancelled"
                new += 1
    return new, ROUNDS - new


def bulks(url: str, side: int) -> int:
    """Enqueues many at once, of a few entities' works, in any order; how many were new."""
    chance, new = random.Random(side), 0
    with racing(url) as database:
        for n in range(ROUNDS // 5):
            keys = [(chance.randrange(20), f"{n} {chance.randrange(3)}") for _ in range(20)]
            with database.transaction() as connection:
                receipts = enqueue(connection, [task(unique_key=f"{u} of {k}", lock_key=k) for u, k in keys])
            new += len({r.id for r in receipts if r.is_new})
    return new
