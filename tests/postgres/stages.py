"""Short ways to a stage of a task's life, for tests that begin there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from celeriac.dispatch import claim
from celeriac.dispatch.claim import Held
from celeriac.enqueue.insert import enqueue
from celeriac.enqueue.rows import NewTask, Receipt
from celeriac.run import shared, start
from celeriac.settle import write
from celeriac.settle.outcome import Outcome, Started
from celeriac.store import look
from celeriac.store.connections import Database

WORKER, PID = "worker-1", 4711


def enqueued(database: Database, *tasks: NewTask) -> list[Receipt]:
    with database.transaction() as connection:
        return enqueue(connection, tasks)


def claimed(database: Database, role: str = "work", n: int = 1, account: str = "") -> tuple[list[int], str]:
    """The ids of the account's `n` best ready tasks, and the token of their ticket."""
    token = claim.fresh_token()
    with database.transaction() as connection:
        taken = claim.claim(connection, role, {account: n})
        claim.hold(connection, role, [Held(token, taken)] if taken else [])
    return [task.id for task in taken], token


def started(
    database: Database, ids: Sequence[int], token: str, *, role: str = "work", pid: int = PID, again: bool = False
) -> list[Started]:
    with database.statement() as connection:
        return start.start(connection, role, ids, token, worker_id=WORKER, pid=pid, again=again)


def started_few(database: Database, token: str, *, most: int = 16) -> list[Started] | None:
    """What a worker starts without a pass."""
    with database.statement() as connection:
        return start.start_few(connection, "work", most, token, worker_id=WORKER, pid=PID)


def looked(database: Database) -> list[str]:
    """A worker has looked, as each does again and again: the roles that got a head."""
    with database.transaction() as connection:
        return look.look(connection)


def running(database: Database, *tasks: NewTask) -> list[Started]:
    """These tasks, enqueued, claimed and started; all of one role and account."""
    enqueued(database, *tasks)
    return started(database, *claimed(database, tasks[0].role, len(tasks), tasks[0].account), role=tasks[0].role)


def outcome(task: Started, status: str = "completed", **more: Any) -> Outcome:
    return Outcome(task=task, status=status, **({"retry_count": task.retry_count, "tries": task.tries} | more))


def again(task: Started, delay: float = 0.0, **more: Any) -> Outcome:
    """Back to pending: a retry."""
    return outcome(task, "pending", **({"kind": "retry", "delay": delay, "retry_count": task.retry_count + 1} | more))


def settled(database: Database, *outcomes: Outcome) -> set[int]:
    with database.transaction() as connection:
        return settle_in(connection, *outcomes)


def settle_in(connection: Connection, *outcomes: Outcome) -> set[int]:
    return set(write.settle(connection, outcomes, "test"))


def limit(task: int, ends: float) -> None:
    """This process runs that task under a hard limit that ends then (monotonic); 0, 0.0: none under a limit.

    Looked up at each call: a worker embedded in an earlier test has made memory of its own.
    """
    shared.limiting(shared.place())(task, ends)
