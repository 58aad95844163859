"""Faults of those who share the database: open transactions on every kind of key, moves of the schema under load."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from celeriac.store.failures import is_locked
from faults.keys import LOCKS, UNIQUES
from faults.members import PATIENCE, ROOT, must
from faults.rounds import Fault
from faults.stack import Stack

#: Seconds a transaction stays open.
OPEN = 5.0

#: Where tasks are, the finished at the end.
ROOMS = ("tasks", "ready", "tickets", "later", "behind", "locks", "history")

DROP_LAST_DAY = """
DO $$ BEGIN
    SET LOCAL lock_timeout = '500ms';
    PERFORM celeriac.drop_history_day(max(to_date(right(relname, 8), 'YYYYMMDD')))
    FROM pg_class WHERE relname ~ '^history_[0-9]{8}$';
EXCEPTION WHEN lock_not_available THEN NULL; END $$
"""


@contextmanager
def transaction(stack: Stack) -> Iterator[Connection]:
    """Somebody's, past the proxy; rolled back at the end."""
    with stack.engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        yield connection
        connection.rollback()


def _enqueue(connection: Connection, role: str, arguments: dict[str, object], **more: str) -> None:
    given = "".join(f", {name} => :{name}" for name in more)
    call = f"SELECT celeriac.enqueue(:role, CAST(:arguments AS jsonb){given})"
    connection.execute(text(call), {"role": role, "arguments": json.dumps(arguments), **more})


def keys_rushed(stack: Stack) -> None:
    """Many enqueue for one unique key at the same time: one task of it at a time, whoever's."""
    threads = [threading.Thread(target=_rush, args=(stack, n)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _rush(stack: Stack, n: int) -> None:
    for key in range(5):
        stack.enqueue("single", 1, json.dumps({"key": f"rushed {(key + n) % 5}", "seconds": 0.3}))
        time.sleep(0.1)


def lock_keys_open(stack: Stack) -> None:
    """A caller has enqueued tasks for every lock key and does not commit."""
    with transaction(stack) as connection:
        for key in range(LOCKS):
            _enqueue(connection, "locked", {"key": str(key)})
        time.sleep(OPEN)


def unique_keys_open(stack: Stack) -> None:
    """A caller has every unique key that is free, and does not commit: others wait or go to the outbox."""
    with transaction(stack) as connection:
        connection.execute(text("SET LOCAL lock_timeout = '2 s'"))
        for key in range(UNIQUES):
            _enqueue(connection, "single", {"key": str(key)})
        time.sleep(OPEN)


def task_ids_open(stack: Stack) -> None:
    """A caller has task ids that schedules and plain Celery apps are about to use: here the harness's own."""
    with transaction(stack) as connection:
        for n in range(5):
            _enqueue(connection, "quick", {"account": "open"}, task_id=f"open-{n}")
        time.sleep(OPEN)


def rows_locked(stack: Stack) -> None:
    """Somebody has rows of every room locked, a few hundred at a time."""
    for _ in range(3):
        with transaction(stack) as connection:
            for room in ROOMS[:-1]:
                connection.execute(text(f"SELECT FROM celeriac.{room} LIMIT 200 FOR UPDATE SKIP LOCKED"))
            time.sleep(OPEN / 3)


def table_locked(stack: Stack) -> None:
    """Somebody has locked what each start and settle needs, as VACUUM FULL does."""
    with transaction(stack) as connection:
        connection.execute(text("LOCK TABLE celeriac.tickets IN ACCESS EXCLUSIVE MODE"))
        time.sleep(4 * OPEN)


def pending_open(stack: Stack) -> None:
    """A statement in psql that nobody commits: what waits has another priority in it, and belongs to it."""
    with transaction(stack) as connection:
        connection.execute(text("UPDATE celeriac.worker_tasks SET priority = priority + 1 WHERE status = 'pending'"))
        time.sleep(12 * OPEN)


def ring_turned(stack: Stack) -> None:
    """The ring of `ready` turns several times a second, as if dead entries piled up."""
    until = time.monotonic() + OPEN
    while time.monotonic() < until:
        stack.sql("UPDATE celeriac.ring SET seg = (seg + 1) % 3")
        time.sleep(0.3)


def partitions_changed(stack: Stack) -> None:
    """Days of the history are taken and made anew, as at midnight; those of tomorrow and later, which are empty."""
    until = time.monotonic() + OPEN
    while time.monotonic() < until:
        celeriac(stack, "sweep", "history", "prune")
        stack.sql(DROP_LAST_DAY)


def migrated(stack: Stack) -> None:
    """`celeriac migrate` beside the running system: every routine is replaced while it is used."""
    for _ in range(2):
        celeriac(stack, "migrate")


def altered(stack: Stack) -> None:
    """What the migration of a later release begins with: a column more in each room, beneath this release; and away."""
    for change in ("ADD COLUMN IF NOT EXISTS expanded integer NOT NULL DEFAULT 0", "DROP COLUMN IF EXISTS expanded"):
        for room in ROOMS:
            must(lambda room=room, change=change: _alter(stack, room, change), PATIENCE, f"{room} to be free")  # type: ignore[misc]
        time.sleep(OPEN / 2)


def _alter(stack: Stack, room: str, change: str) -> bool:
    """Whether the table was free soon enough; whoever waits for it holds up all that come after."""
    try:
        stack.sql(f"DO $$ BEGIN SET LOCAL lock_timeout = '200ms'; ALTER TABLE celeriac.{room} {change}; END $$")
    except DBAPIError as error:
        if not is_locked(error):
            raise
        return False
    return True


def celeriac(stack: Stack, *command: str, check: bool = True) -> int:
    """An operator's command, through the proxies; its exit status."""
    environ = {**stack.environ, "FAULTS_WHO": "command"}
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "faults.app", "celeriac", *command], cwd=ROOT, env=environ, check=check,
        stdout=subprocess.DEVNULL, stderr=None if check else subprocess.DEVNULL, timeout=PATIENCE,
    )  # fmt: skip
    return done.returncode


FAULTS = [
    Fault("keys-rushed", "eight callers enqueue for the same unique keys at once", keys_rushed),
    Fault("lock-keys-open", "an open transaction has enqueued for every lock key, 5 s", lock_keys_open),
    Fault("unique-keys-open", "an open transaction has every unique key, 5 s", unique_keys_open),
    Fault("task-ids-open", "an open transaction has task ids, 5 s", task_ids_open),
    Fault("rows-locked", "an open transaction has rows of every room locked, 5 s", rows_locked),
    Fault("table-locked", "the table of tickets is locked for 20 s", table_locked),
    Fault("pending-open", "an open transaction has updated all that waits, 60 s", pending_open),
    Fault("ring-turned", "the ring turns three times a second, 5 s", ring_turned),
    Fault("partitions-changed", "days of the history come and go, 5 s", partitions_changed),
    Fault("migrated", "celeriac migrate runs twice under load", migrated),
    Fault("altered", "each room gets a column more, as of a later release, and loses it again", altered),
]
