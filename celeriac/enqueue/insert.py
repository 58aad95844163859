"""Enqueue: one INSERT, in the caller's transaction."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg2.errors import UniqueViolation
from sqlalchemy import Connection, Row, text

from celeriac.errors import CeleriacError
from celeriac.settle.look import lead
from celeriac.store.connections import Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A row to be. `delay` (seconds from the database's now) or `at` (ISO 8601) or neither: due at once."""

    task_id: str
    role: str
    account: str = ""
    lock_key: str | None = None
    unique_key: str | None = None
    priority: int = 0
    args: list[Any]
    kwargs: dict[str, Any]
    headers: dict[str, Any] | None = None
    delay: float | None = None
    at: str | None = None
    expires_in: float | None = None
    expires_at: str | None = None
    max_retries: int | None = 0
    max_tries: int = 1
    timeout: float | None = None
    parent_id: int | None = None
    enqueued_by: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where an enqueue ended: a new row, or the unfinished one that holds its key."""

    id: int
    task_id: str
    is_new: bool
    waits_for: str | None = None


# INVARIANT of `fresh`: of several new rows with one lock key, at most the first leads, and none if a leader exists
# (no EXISTS: the planner may answer one for many rows by reading all leaders there are), or one just gave it up: who
# waits for such a key already has the older claim.
# A leader or a unique key committed meanwhile makes ON CONFLICT drop the row; the caller looks again. An uncommitted
# one is waited for: all bulks take keys in one order, so that no two wait for each other (lock keys first: work on an
# entity is finer than the entity; and the lead with the first row of its key, or not at all).
INSERT = text("""
WITH given AS (
    SELECT *, ordinality AS place,
           coalesce(at, statement_timestamp() + coalesce(delay, 0) * interval '1 second') AS due
    FROM ROWS FROM (jsonb_to_recordset(CAST(:rows AS jsonb)) AS (
        task_id text, role text, account text, lock_key text, unique_key text, priority integer,
        args jsonb, kwargs jsonb, headers jsonb, delay double precision, at timestamptz,
        expires_in double precision, expires_at timestamptz, max_retries integer, max_tries integer,
        timeout double precision, parent_id bigint, enqueued_by text
    )) WITH ORDINALITY
), fresh AS (
    SELECT *,
        CASE
            WHEN due > statement_timestamp() THEN 'time'
            WHEN lock_key IS NULL THEN NULL
            WHEN row_number() OVER (PARTITION BY lock_key ORDER BY role, unique_key, place) > 1
              OR lock_key = ANY (CAST(:given_up AS text[]))
              OR (
                SELECT true FROM worker_tasks l
                WHERE l.lock_key = given.lock_key AND l.waits_for IS NULL
                  AND l.status IN ('pending', 'claimed', 'running') LIMIT 1
            ) THEN 'lock'
        END AS waits_for
    FROM given
)
INSERT INTO worker_tasks (
    task_id, role, account, lock_key, unique_key, priority, args, kwargs, headers, scheduled_for, waits_for,
    expires_at, max_retries, max_tries, timeout, parent_id, enqueued_by
)
SELECT task_id, role, account, lock_key, unique_key, priority, args, kwargs, headers, due, waits_for,
    coalesce(expires_at, statement_timestamp() + expires_in * interval '1 second'),
    max_retries, max_tries, timeout, parent_id, enqueued_by
FROM fresh
ORDER BY lock_key, role, unique_key, place
ON CONFLICT DO NOTHING
RETURNING id, task_id, waits_for
""")

# One row that is due at once and asks for no lock, which most are: nothing to unpack, to wait for or to compare it
# with, at a third of the cost.
_READY = """
INSERT INTO worker_tasks (
    task_id, role, account, unique_key, priority, args, kwargs, headers, max_retries, max_tries, timeout, parent_id,
    enqueued_by
)
VALUES (
    :task_id, :role, :account, :unique_key, :priority, CAST(:args AS jsonb), CAST(:kwargs AS jsonb),
    CAST(:headers AS jsonb), :max_retries, :max_tries, :timeout, :parent_id, :enqueued_by
)
{} RETURNING id, task_id, waits_for
"""
INSERT_READY = text(_READY.format("ON CONFLICT DO NOTHING"))

# Without a unique key only its id could be taken: an error then costs less than looking out for it each time. Never in
# the caller's transaction, which it would end.
INSERT_KEYLESS = text(_READY.format(""))

EXISTING = text("""
SELECT DISTINCT ON (g.task_id) g.task_id AS wanted, t.id, t.task_id,
    t.task_id <> g.task_id AND t.status <> 'running' AND t.expires_at <= clock_timestamp() AS expired
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS g (task_id text, role text, unique_key text)
JOIN worker_tasks t ON t.task_id = g.task_id
    OR (t.role = g.role AND t.unique_key = g.unique_key AND t.status IN ('pending', 'claimed', 'running'))
ORDER BY g.task_id, t.task_id = g.task_id DESC
""")

MAKE_WAY = text("SELECT celeriac_make_way(:role, :unique_key, :by)")

LEADING = text("SELECT id FROM worker_tasks WHERE id = ANY(CAST(:ids AS bigint[])) AND waits_for IS NULL")

#: Each round loses only to a competitor that committed in between; more than a few in a row is a fault of ours.
ROUNDS = 100

_FIELDS = tuple(NewTask.__slots__)


def as_json(tasks: Sequence[NewTask]) -> str:
    return json.dumps([{name: getattr(t, name) for name in _FIELDS if getattr(t, name) is not None} for t in tasks])


_READY_TYPES = {
    "task_id": "text", "role": "text", "account": "text", "unique_key": "text", "priority": "integer", "args": "text",
    "kwargs": "text", "headers": "text", "max_retries": "integer", "max_tries": "integer",
    "timeout": "double precision", "parent_id": "bigint", "enqueued_by": "text",
}  # fmt: skip
_INSERT_READY = Prepared("celeriac_insert_ready", INSERT_READY, _READY_TYPES)
_INSERT_KEYLESS = Prepared("celeriac_insert_keyless", INSERT_KEYLESS, _READY_TYPES)

#: What a row has to lack to be ready by its mere insert.
_NOT_READY = ("lock_key", "delay", "at", "expires_in", "expires_at")


def is_ready(task: NewTask) -> bool:
    """Whether the row's mere insert makes it ready: it is due at once and asks for no lock."""
    return all(getattr(task, name) is None for name in _NOT_READY)


def enqueue_ready(cursor: Any, task: NewTask) -> Receipt | None:
    """The new row of a task that `is_ready`, on the driver's cursor in autocommit; None if its key or id is taken."""
    insert = _INSERT_KEYLESS if task.unique_key is None else _INSERT_READY
    try:
        insert.execute(cursor, ready_row(task))
    except UniqueViolation:
        return None
    row = cursor.fetchone()
    return row and Receipt(row[0], row[1], True)


def _insert(connection: Connection, tasks: Sequence[NewTask], given_up: Collection[str]) -> Iterable[Row[Any]]:
    if len(tasks) > 1 or not is_ready(tasks[0]):
        return connection.execute(INSERT, {"rows": as_json(tasks), "given_up": list(given_up)})
    return connection.exec_driver_sql(_INSERT_READY.unprepared, ready_row(tasks[0]))


def ready_row(task: NewTask) -> dict[str, Any]:
    row = {name: getattr(task, name) for name in _FIELDS}
    return row | {n: None if row[n] is None else json.dumps(row[n]) for n in ("args", "kwargs", "headers")}


def enqueue(connection: Connection, tasks: Sequence[NewTask], *, commits_soon: bool = True) -> list[Receipt]:
    """A receipt per task, in order. Two tasks with one id, or with one (role, unique key), get the same row.

    `commits_soon` False, for a caller's own transaction: nobody who settles has to wait for it. A leader that settles
    before the commit then leaves its key to the sweep.
    """
    first = _first(tasks)
    distinct = list(first.values())
    found = _insert_or_find(connection, distinct)
    # The one that was to lead such a key is another row, or waits for its time.
    unled = {t.lock_key for t in distinct if not (r := found[t.task_id]).is_new or r.waits_for == "time"}
    behind = [t for t in distinct if found[t.task_id].waits_for == "lock" and (commits_soon or t.lock_key in unled)]
    if behind:
        found |= _led(connection, [(t, found[t.task_id]) for t in behind])
    return [found[t.task_id] if first[t.task_id] is t else _again(found[t.task_id]) for t in tasks]


def line_up(connection: Connection, tasks: Sequence[NewTask], given_up: Collection[str]) -> list[str]:
    """Enqueues, and returns the keys that some of these wait for: before it commits, the caller gives them the lead.

    With those it has `given_up`, as it ended their leaders: so a transaction takes its turns at keys once and in order.
    """
    distinct = _first(tasks)
    found = _insert_or_find(connection, list(distinct.values()), given_up) if tasks else {}
    return [t.lock_key for t in distinct.values() if t.lock_key is not None and found[t.task_id].waits_for == "lock"]


def _first(tasks: Sequence[NewTask]) -> dict[str, NewTask]:
    """Of several with one id the first, by their ids, in order."""
    first: dict[str, NewTask] = {}
    for task in tasks:
        first.setdefault(task.task_id, task)
    return first


def _again(receipt: Receipt) -> Receipt:
    return Receipt(receipt.id, receipt.task_id, False)


def _led(connection: Connection, behind: Sequence[tuple[NewTask, Receipt]]) -> dict[str, Receipt]:
    """Who of these leads after all: the one who was to lead settled meanwhile, is another row or waits for its time."""
    if not lead(connection, [str(task.lock_key) for task, _ in behind]):
        return {}
    ids = {receipt.id: receipt.task_id for _, receipt in behind}
    leading = connection.execute(LEADING, {"ids": list(ids)}).scalars()
    return {ids[i]: Receipt(i, ids[i], True) for i in leading}


def _insert_or_find(
    connection: Connection, tasks: Sequence[NewTask], given_up: Collection[str] = ()
) -> dict[str, Receipt]:
    found: dict[str, Receipt] = {}
    missing = list(tasks)
    for _ in range(ROUNDS):
        for row in _insert(connection, missing, given_up):
            found[row.task_id] = Receipt(row.id, row.task_id, True, row.waits_for)
        missing = [t for t in missing if t.task_id not in found]
        if not missing:
            return found
        holders = connection.execute(EXISTING, {"rows": as_json(missing)}).all()
        _make_way(connection, missing, {row.wanted for row in holders if row.expired})
        found |= {row.wanted: Receipt(row.id, row.task_id, False) for row in holders if not row.expired}
        missing = [t for t in missing if t.task_id not in found]
        if not missing:
            return found
    raise CeleriacError(f"{len(missing)} task(s) found their keys taken and free again {ROUNDS} times; try again")


def _make_way(connection: Connection, tasks: Sequence[NewTask], late: set[str]) -> None:
    """What holds these tasks' unique keys has expired: it is cancelled, as at its start, and they are new."""
    for task in tasks:
        if task.task_id in late:
            given = {"role": task.role, "unique_key": task.unique_key, "by": task.enqueued_by}
            connection.execute(MAKE_WAY, given)
