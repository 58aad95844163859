"""Ready: insert new tasks that may start at once, as most may, by the shortest way to Postgres."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from psycopg2.errors import LockNotAvailable, UniqueViolation
from sqlalchemy import Connection, text

from celeriac.enqueue.rows import FIELDS, NewTask, Receipt
from celeriac.store.prepared import Prepared, for_cursor

# Plain VALUES: there is nothing to unnest, and `history` is not searched for the task's id.
_READY = """
WITH fresh AS (
    INSERT INTO celeriac.tasks (
        task_id, role, account, unique_key, priority, args, kwargs, headers, max_retries, max_rounds, timeout,
        parent_id, enqueued_by
    )
    VALUES (
        :task_id, :role, :account, :unique_key, :priority, CAST(:args AS jsonb), CAST(:kwargs AS jsonb),
        CAST(:headers AS jsonb), :max_retries, :max_rounds, :timeout, :parent_id, :enqueued_by
    )
    {} RETURNING id, role, account, priority, scheduled_for
)
INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id)
SELECT (SELECT seg FROM celeriac.ring), role, account, priority, scheduled_for, id FROM fresh RETURNING id
"""
INSERT_READY = text(_READY.format("ON CONFLICT DO NOTHING"))

# Only `task_id` can conflict, so let the rare UniqueViolation raise; ON CONFLICT costs every insert. Never use this in
# a caller's transaction, because the error would end it.
INSERT_KEYLESS = text(_READY.format(""))

_READY_TYPES = {
    "task_id": "text", "role": "text", "account": "text", "unique_key": "text", "priority": "integer", "args": "text",
    "kwargs": "text", "headers": "text", "max_retries": "integer", "max_rounds": "integer",
    "timeout": "double precision", "parent_id": "bigint", "enqueued_by": "text",
}  # fmt: skip
_row = attrgetter(*_READY_TYPES)
_INSERT_READY = Prepared(INSERT_READY, _READY_TYPES)
_INSERT_KEYLESS = Prepared(INSERT_KEYLESS, _READY_TYPES)

#: Limits how long the INSERT waits for a unique key that another transaction holds; sent with it in one round trip.
BRIEFLY = "SET LOCAL lock_timeout = '50 ms'; "

#: Fields that must be None for a task to be inserted by itself in a caller's transaction.
_NEVER_LONE = ("unique_key", "place")

#: Fields that must be None for a task to be ready as soon as it is inserted, by its role's own name, and with no
#: retries used.
_NOT_READY = (
    "queue", "lock_key", "delay", "at", "expires_in", "expires_at", "workflow", "barrier", "awaits", "retry_count",
)  # fmt: skip
_put_off = attrgetter(*_NOT_READY)
_NONE = (None,) * len(_NOT_READY)


def is_ready(task: NewTask) -> bool:
    """Return whether the task is ready once it is inserted: due at once, no lock, and an id nobody else can have."""
    return not task.is_named and _put_off(task) == _NONE


def enqueue_ready(cursor: Any, task: NewTask) -> Receipt | None:
    """Insert a task that `is_ready`, on the driver's cursor in autocommit, and return its receipt.

    None: its key or id is taken, or an open transaction holds its key or has locked a table.
    """
    insert = _INSERT_KEYLESS if task.unique_key is None else _INSERT_READY
    try:
        insert.execute(cursor, ready_row(task), before="" if task.unique_key is None else BRIEFLY)
    except (UniqueViolation, LockNotAvailable):
        return None
    row = cursor.fetchone()
    return row and Receipt(row[0], task.task_id, True)


# This takes half the time of the statement that inserts many, because no plan is made.
INSERT_LONE = text("""
SELECT celeriac.insert_ready(:task_id, :role, :account, :priority, CAST(:args AS jsonb), CAST(:kwargs AS jsonb),
    CAST(:headers AS jsonb), :max_retries, :max_rounds, :timeout, :parent_id, :enqueued_by)
""")
_LONE = for_cursor(INSERT_LONE)


def is_lone(tasks: Sequence[NewTask]) -> bool:
    """Return whether this is a single task that is ready once inserted and that no other task can conflict with."""
    if len(tasks) != 1:
        return False
    return is_ready(tasks[0]) and all(getattr(tasks[0], name) is None for name in _NEVER_LONE)


def enqueue_lone(connection: Connection, task: NewTask) -> Receipt:
    """Insert a task that `is_lone`, in anybody's transaction, and return its receipt."""
    return Receipt(connection.exec_driver_sql(_LONE, ready_row(task)).scalar_one(), task.task_id, True)


def ready_row(task: NewTask) -> dict[str, Any]:
    row = dict(zip(_READY_TYPES, _row(task), strict=True))
    if task.headers is not None:
        row["headers"] = json.dumps(task.headers)
    return row


# -- many of a kind ----------------------------------------------------------------------------------------------------

_COMMON = ("role", "priority", "max_retries", "max_rounds", "timeout", "parent_id", "enqueued_by")
_common = attrgetter(*_COMMON)
_NEVER_ALIKE = ("unique_key", "headers", "retry_count", "place")
_beside_arguments = attrgetter(*(name for name in FIELDS if name not in ("task_id", "account")))

# For tasks that differ in their accounts and arguments alone. Takes half the time of `insert.INSERT`; from a JSON
# document, which is parsed twice, a row took 26 us instead of 21.
INSERT_ALIKE = text("""
WITH fresh AS (
    INSERT INTO celeriac.tasks (
        task_id, role, account, priority, args, kwargs, max_retries, max_rounds, timeout, parent_id, enqueued_by
    )
    SELECT task_id, CAST(:role AS text), account, CAST(:priority AS integer), CAST(args AS jsonb),
        CAST(kwargs AS jsonb), CAST(:max_retries AS integer), CAST(:max_rounds AS integer),
        CAST(:timeout AS double precision), CAST(:parent_id AS bigint), CAST(:enqueued_by AS text)
    FROM unnest(
        CAST(:task_ids AS text[]), CAST(:accounts AS text[]), CAST(:args AS text[]), CAST(:kwargs AS text[])
    ) AS alike (task_id, account, args, kwargs)
    RETURNING id, task_id, role, account, priority, scheduled_for
), to_ready AS (
    INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id)
    SELECT (SELECT seg FROM celeriac.ring), role, account, priority, scheduled_for, id FROM fresh
)
SELECT array_agg(id ORDER BY task_id COLLATE "C") FROM fresh
""")


def are_alike(tasks: Sequence[NewTask]) -> bool:
    """Return whether each task is ready once inserted, and they differ in ids, accounts and arguments alone.

    An id that was made for a task is unique, so neither the database nor these tasks are searched for it.
    """
    first = tasks[0]
    if not is_ready(first) or any(getattr(first, name) is not None for name in _NEVER_ALIKE):
        return False
    return all(map(_beside_arguments(first).__eq__, map(_beside_arguments, tasks)))


def enqueue_alike(connection: Connection, tasks: Sequence[NewTask]) -> list[Receipt]:
    """Insert tasks that `are_alike` and return their receipts in the order of the tasks."""
    row_ids = connection.execute(INSERT_ALIKE, alike_row(tasks)).scalar_one()
    ids = dict(zip(sorted(task.task_id for task in tasks), row_ids, strict=True))
    return [Receipt(ids[task.task_id], task.task_id, True) for task in tasks]


def alike_row(tasks: Sequence[NewTask]) -> dict[str, Any]:
    """Return the parameters: a value for each field they have in common, an array for each other one."""
    row = dict(zip(_COMMON, _common(tasks[0]), strict=True))
    return row | {
        "task_ids": array(task.task_id for task in tasks), "accounts": array(task.account for task in tasks),
        "args": array(task.args for task in tasks), "kwargs": array(task.kwargs for task in tasks),
    }  # fmt: skip


def array(texts: Iterable[str]) -> str:
    """Return a text[] of one or more as a literal, which Postgres parses faster than an ARRAY of literals."""
    quoted = [text.replace("\\", r"\\").replace('"', r"\"") if '"' in text or "\\" in text else text for text in texts]
    return '{"' + '","'.join(quoted) + '"}'
