"""The outbox: accepted tasks that could not be inserted without waiting for somebody's open transaction.

Whoever holds a task's unique key in a transaction of its own decides with its commit whether the task is new. Neither a
settle nor a `.delay()` waits for that: they leave the task in `intake`, committed, and it is admitted afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from psycopg2.errors import LockNotAvailable
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from celeriac.enqueue.insert import NewTask, Receipt, as_json, enqueue
from celeriac.store.connections import Database

#: How long (milliseconds) an insert waits for somebody's unique key.
PATIENCE_MS = 100

# What was relative to the call is absolute from here on.
PUT = text("""
INSERT INTO celeriac.intake (task)
SELECT (task - 'delay' - 'expires_in')
    || CASE WHEN task ? 'delay' THEN jsonb_build_object(
        'at', statement_timestamp() + (task ->> 'delay')::double precision * interval '1 second') ELSE '{}' END
    || CASE WHEN task ? 'expires_in' THEN jsonb_build_object(
        'expires_at', statement_timestamp() + (task ->> 'expires_in')::double precision * interval '1 second')
        ELSE '{}' END
FROM jsonb_array_elements(CAST(:tasks AS jsonb)) AS task
""")

TAKE = text("""
SELECT id, task FROM celeriac.intake WHERE id > :after ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
""")

ADMITTED = text("DELETE FROM celeriac.intake WHERE id = :id")


def put(connection: Connection, tasks: Sequence[NewTask]) -> None:
    """Accepts them, in the caller's transaction; `admit` inserts them."""
    connection.execute(PUT, {"tasks": as_json(tasks)})


def enqueue_or_put(connection: Connection, tasks: Sequence[NewTask]) -> list[Receipt] | None:
    """Enqueues within this transaction; None where somebody's open transaction has a unique key, and they were put."""
    if all(task.unique_key is None for task in tasks):
        return enqueue(connection, tasks)
    try:
        with _briefly(connection):
            return enqueue(connection, tasks)
    except DBAPIError as error:
        if not isinstance(error.orig, LockNotAvailable):
            raise
        put(connection, tasks)
        return None


def admit(connection: Connection, after: int = 0) -> tuple[int, str | None] | None:
    """One task of the outbox behind `after`, in the caller's transaction: its place, and its role if it was admitted.

    None: there are no more that nobody else is admitting.
    """
    row = connection.execute(TAKE, {"after": after}).one_or_none()
    if row is None:
        return None
    task = NewTask(**row.task)
    try:
        with _briefly(connection):
            enqueue(connection, [task])
            connection.execute(ADMITTED, {"id": row.id})
    except DBAPIError as error:
        if not isinstance(error.orig, LockNotAvailable):
            raise
        return row.id, None
    return row.id, task.role


def admit_all(database: Database) -> set[str]:
    """Admits what nobody's transaction holds up any longer, each in one of its own; the roles of what was admitted."""
    roles: set[str] = set()
    after = 0
    while True:
        with database.transaction() as connection:
            done = admit(connection, after)
        if done is None:
            return roles
        after = done[0]
        roles |= {done[1]} if done[1] else set()


@contextmanager
def _briefly(connection: Connection) -> Iterator[None]:
    """A savepoint in which no lock is waited for longer than `PATIENCE_MS`; what fails there undoes nothing else."""
    connection.exec_driver_sql(f"SAVEPOINT briefly; SET LOCAL lock_timeout = '{PATIENCE_MS} ms'")
    try:
        yield
    except DBAPIError as error:
        if not error.connection_invalidated:
            connection.exec_driver_sql("ROLLBACK TO SAVEPOINT briefly")
        raise
    connection.exec_driver_sql("SET LOCAL lock_timeout TO DEFAULT; RELEASE SAVEPOINT briefly")
