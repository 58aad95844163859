"""The outbox: accepted tasks that could not be inserted without waiting for somebody's open transaction.

A transaction that holds a task's unique key or id decides with its commit whether the task is new. Neither a settle
nor a `.delay()` waits for that: they leave the task in `intake`, committed, and it is admitted afterwards.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg2.errors import LockNotAvailable
from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import DBAPIError

from celeriac.enqueue import rests
from celeriac.enqueue.bulk import enqueue_bulk, tell_different
from celeriac.enqueue.insert import enqueue
from celeriac.enqueue.rows import NewTask, Receipt, as_json
from celeriac.errors import SnapshotTooOld
from celeriac.store.connections import Database
from celeriac.store.failures import is_gone, log_error
from celeriac.store.role_names import lane_of

logger = logging.getLogger(__name__)

#: Milliseconds that an insert waits for another transaction's key or id, and that an admission does, which is repeated.
PATIENCE_MS, ADMISSION_PATIENCE_MS = 100, 5

#: Seconds in which one pass over the outbox admits tasks; on a slow network, the time of so many round trips instead.
#: The next pass continues.
BUDGET, TRIPS = 0.5, 40

#: Tasks admitted in one transaction: few round trips for many of them.
BATCH = 50

# Times that were relative to the call become absolute here.
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
SELECT id, task FROM celeriac.intake WHERE id > :after ORDER BY id LIMIT :batch FOR UPDATE SKIP LOCKED
""")

ADMITTED = text("DELETE FROM celeriac.intake WHERE id = ANY (CAST(:ids AS bigint[]))")

# The statement needs no index: the table has few rows, and the statement is rarely run.
DROP = text("""
DELETE FROM celeriac.intake
WHERE task ->> 'task_id' = ANY (CAST(:task_ids AS text[]))
    AND CAST(task ->> 'parent_id' AS bigint) = ANY (CAST(:parents AS bigint[]))
""")


# Returns the old setting before the new one is set, so that it can be restored.
BRIEFLY = """
SAVEPOINT briefly;
WITH was AS MATERIALIZED (SELECT current_setting('lock_timeout') AS was)
SELECT was, set_config('lock_timeout', %(patience)s, true) FROM was
"""


def put(connection: Connection, tasks: Sequence[NewTask]) -> None:
    """Accept these tasks in the caller's transaction; `admit` inserts them later."""
    connection.execute(PUT, {"tasks": as_json(tasks)})


def drop(connection: Connection, task_ids: Sequence[str], parents: Sequence[int]) -> None:
    """Remove these tasks from the outbox, as far as these parents put them there: they are not accepted after all."""
    connection.execute(DROP, {"task_ids": list(task_ids), "parents": list(parents)})


def enqueue_or_put(connection: Connection, tasks: Sequence[NewTask]) -> list[Receipt] | None:
    """Enqueue within this transaction, or put the tasks in the outbox and return None.

    None means that an open transaction has a key or an id of theirs, or that this transaction's snapshot is too old.
    """
    if all(task.unique_key is None and not task.is_named for task in tasks):
        return enqueue_bulk(connection, tasks)
    receipts = enqueue_briefly(connection, tasks)
    if receipts is None:
        put(connection, tasks)
    return receipts


def enqueue_briefly(connection: Connection, tasks: Sequence[NewTask]) -> list[Receipt] | None:
    """Enqueue within this transaction, or enqueue nothing and return None.

    None means that an open transaction has a key or an id of theirs, or that this transaction may not see the end of a
    task.
    """
    try:
        with _briefly(connection, PATIENCE_MS):
            rests.keep(connection, tasks)
            return enqueue(connection, tasks)
    except SnapshotTooOld:
        return None
    except DBAPIError as error:
        if not isinstance(error.orig, LockNotAvailable):
            raise
        return None


class Admission:
    """Insert tasks from the outbox once no transaction holds them up, a batch in a transaction."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.after = 0
        self.refused: set[int] = set()

    def look(self) -> set[str]:
        """Admit for up to `BUDGET` seconds, over a distance for longer, from where the last call stopped,
        and return the roles of what was admitted.
        """
        roles: set[str] = set()
        began, trip = time.monotonic(), 0.0
        while True:
            with self.database.transaction() as connection:
                rows = connection.execute(TAKE, {"after": self.after, "batch": BATCH}).all()
                trip = trip or time.monotonic() - began
                ends = began + max(BUDGET, TRIPS * trip)
                roles |= self._admit(connection, rows, ends)
            if not rows:
                self.after = 0
            if not rows or time.monotonic() >= ends:
                return roles

    def _admit(self, connection: Connection, rows: Sequence[Row[Any]], ends: float) -> set[str]:
        """Admit these tasks and return the roles of those that were. What cannot be is logged once and left, and holds
        up no other: it is found by halves, until the time is over.
        """
        if not rows:
            return set()
        try:
            with _briefly(connection, ADMISSION_PATIENCE_MS):
                new = [_task(row.task) for row in rows]
                tell_different(new, enqueue(connection, new))
                connection.execute(ADMITTED, {"ids": [row.id for row in rows]})
        except Exception as error:
            if is_gone(error):
                raise
            if len(rows) > 1:
                half = len(rows) // 2
                roles = self._admit(connection, rows[:half], ends)
                return roles | (self._admit(connection, rows[half:], ends) if time.monotonic() < ends else set())
            self._refuse(rows[0].id, error)
            self.after = rows[0].id
            return set()
        self.after = rows[-1].id
        return {lane_of(row.task["role"], row.task.get("queue")) for row in rows}

    def _refuse(self, row: int, error: Exception) -> None:
        if isinstance(getattr(error, "orig", None), LockNotAvailable) or row in self.refused:
            return
        self.refused.add(row)
        log_error(logger, error, "The task in row %d of celeriac.intake cannot be inserted; it is left there", row)


def _task(row: dict[str, Any]) -> NewTask:
    """Return the task of this row. `as_json` leaves out None, which for `max_retries` differs from its default."""
    arguments = {name: json.dumps(row[name]) for name in ("args", "kwargs")}
    return NewTask(**{"max_retries": None} | row | arguments)


@contextmanager
def _briefly(connection: Connection, patience_ms: int) -> Iterator[None]:
    """Open a savepoint whose statements wait for a lock no longer than this; an error in it undoes nothing
    before it.
    """
    was = connection.exec_driver_sql(BRIEFLY, {"patience": f"{patience_ms} ms"}).scalar_one()
    try:
        yield
    except Exception as error:
        if not getattr(error, "connection_invalidated", False):
            connection.exec_driver_sql("ROLLBACK TO SAVEPOINT briefly")
        raise
    connection.exec_driver_sql("SET LOCAL lock_timeout = %(was)s; RELEASE SAVEPOINT briefly", {"was": was})
