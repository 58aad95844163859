"""Insert new tasks and their entries in the state tables, in one statement of the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, text

from celeriac.enqueue.rows import NewTask, Receipt, as_json, keys_as_json, same_call
from celeriac.errors import CeleriacError, SnapshotTooOld
from celeriac.store import look
from celeriac.store.plans import lookups

# A task is neither inserted nor returned if its unique key or its id is taken; a finished task still has its id. The
# INSERT waits for a transaction that has inserted the same unique key; all bulks insert in one order, by code points as
# Python sorts, so that no two deadlock. It never waits for a lock key: a task with one goes to `behind` even if the key
# is free, and then the post-commit check makes it the holder.
_INSERT = """
WITH given AS (
    SELECT *, ordinality AS nth,
           coalesce(at, statement_timestamp() + coalesce(delay, 0) * interval '1 second') AS due
    FROM ROWS FROM (jsonb_to_recordset(CAST(:rows AS jsonb)) AS (
        task_id text, role text, account text, lock_key text, unique_key text, priority integer,
        args jsonb, kwargs jsonb, headers jsonb, delay double precision, at timestamptz,
        expires_in double precision, expires_at timestamptz, max_retries integer, max_rounds integer,
        timeout double precision, parent_id bigint, enqueued_by text, is_named boolean, retry_count integer,
        workflow text, barrier uuid, place integer, awaits uuid, queue text
    )) WITH ORDINALITY
), fresh AS (
    INSERT INTO celeriac.tasks (
        task_id, role, account, lock_key, unique_key, priority, args, kwargs, headers, scheduled_for,
        expires_at, retry_count, max_retries, max_rounds, timeout, parent_id, enqueued_by, workflow, barrier,
        place, queue
    )
    SELECT task_id, role, account, lock_key, unique_key, priority, args, kwargs, headers, due,
        coalesce(expires_at, statement_timestamp() + expires_in * interval '1 second'),
        coalesce(retry_count, 0), max_retries, max_rounds, timeout, parent_id, enqueued_by, workflow, barrier,
        place, queue
    FROM given
    WHERE {}
    ORDER BY role COLLATE "C", unique_key COLLATE "C", nth
    ON CONFLICT DO NOTHING
    RETURNING id, task_id, role, celeriac.lane(role, queue) AS lane, account, priority, lock_key, scheduled_for
), placed AS (
    SELECT fresh.*, g.awaits, CASE WHEN g.awaits IS NOT NULL THEN 'members'
        WHEN scheduled_for > statement_timestamp() THEN 'time' WHEN fresh.lock_key IS NOT NULL THEN 'lock' END
        AS waits_for
    FROM fresh LEFT JOIN given g ON g.awaits IS NOT NULL AND g.task_id = fresh.task_id
), to_ready AS (
    INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id)
    SELECT (SELECT seg FROM celeriac.ring), lane, account, priority, scheduled_for, id FROM placed
    WHERE waits_for IS NULL
), to_later AS (
    INSERT INTO celeriac.later (role, account, due_at, id)
    SELECT lane, account, scheduled_for, id FROM placed WHERE waits_for = 'time'
), to_behind AS (
    INSERT INTO celeriac.behind (lock_key, priority, due_at, id, role, account)
    SELECT lock_key, priority, scheduled_for, id, lane, account FROM placed WHERE waits_for = 'lock'
), to_barriers AS (
    INSERT INTO celeriac.barriers (id, barrier, role) SELECT id, awaits, role FROM placed WHERE waits_for = 'members'
), to_look_at AS (
    INSERT INTO celeriac.looks (lock_key) SELECT DISTINCT lock_key FROM placed WHERE waits_for = 'lock'
)
SELECT id, task_id, waits_for, lock_key FROM placed
"""
INSERT = text(_INSERT.format("true"))

# Few finished tasks have one of these ids: their list is read once, and each new task's id compared with it.
INSERT_NAMED = text(
    _INSERT.format(
        "NOT (is_named AND task_id IN (SELECT task_id FROM celeriac.history_named(ARRAY("
        "SELECT task_id FROM given WHERE is_named))))"
    )
)

# Finds, for each task that was not inserted, the one that has its id or unique key. `expired`: it holds the unique
# key, its time to start is over and no worker runs it, so it can be cancelled. `never_came`: it stands in history for
# a link that its chain never came to.
EXISTING = text("""
SELECT given.task_id AS wanted, found.id, found.task_id, found.expired, found.never_came,
    CASE WHEN found.due_at IS NOT NULL THEN coalesce(
    (SELECT 'time' FROM celeriac.later l
        WHERE l.role = found.lane AND l.account = found.account AND l.due_at = found.due_at AND l.id = found.id),
    (SELECT 'lock' FROM celeriac.behind b
        WHERE b.lock_key = found.lock_key AND b.priority = found.priority AND b.due_at = found.due_at
            AND b.id = found.id)
    ) END AS waits_for, found.due_at,
    found.task_id = given.task_id AND NOT found.tried
        AND (found.role <> given.role
            OR celeriac.are_other_calls(found.role, found.args, found.kwargs, given.args, given.kwargs)) AS differs
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given (
    task_id text, role text, unique_key text, args jsonb, kwargs jsonb
), LATERAL (
    (SELECT t.id, t.task_id, t.role, celeriac.lane(t.role, t.queue) AS lane, t.args, t.kwargs,
            t.retry_count > 0 OR t.tries > 0 AS tried, t.account, t.lock_key, t.priority,
            t.scheduled_for AS due_at, false AS expired, false AS never_came
        FROM celeriac.tasks t WHERE t.task_id = given.task_id)
    UNION ALL
    (SELECT h.id, h.task_id, h.role, NULL, h.args, h.kwargs,
            h.retry_count > 0 OR h.tries > CAST(h.status = 'failed' AS integer), h.account, h.lock_key, h.priority,
            NULL, false, coalesce(h.headers -> 'canvas' ? 'never_came', false)
        FROM celeriac.history_named(ARRAY[given.task_id]) h LIMIT 1)
    UNION ALL
    (SELECT t.id, t.task_id, t.role, celeriac.lane(t.role, t.queue), t.args, t.kwargs, false, t.account, t.lock_key,
            t.priority, t.scheduled_for,
            CASE WHEN t.expires_at <= clock_timestamp() THEN NOT EXISTS (
            SELECT FROM celeriac.tickets k
            WHERE k.role = celeriac.lane(t.role, t.queue) AND k.worker_id IS NOT NULL AND t.id = ANY (k.ids))
            ELSE false END, false
        FROM celeriac.tasks t WHERE t.role = given.role AND t.unique_key = given.unique_key)
    LIMIT 1
) AS found
""")

# Selects those of these ids whose tasks finished during the INSERT: its unique check no longer met the task, and its
# snapshot did not have the history yet. The second column: whether this statement has a newer snapshot than the INSERT.
FINISHED = text("""
SELECT ARRAY(
    SELECT task_id FROM celeriac.history_named(CAST(:task_ids AS text[]))
), current_setting('transaction_isolation') = 'read committed'
""")

UNDO = text("""
WITH left_rooms AS (SELECT celeriac.leave(CAST(:ids AS bigint[])))
DELETE FROM celeriac.tasks WHERE id = ANY (CAST(:ids AS bigint[])) AND (SELECT count(*) FROM left_rooms) = 1
""")

STILL_BEHIND = text("""
SELECT i.id FROM unnest(CAST(:ids AS bigint[])) AS i (id), LATERAL (
    SELECT lock_key, priority, scheduled_for FROM celeriac.tasks WHERE id = i.id LIMIT 1) AS t, LATERAL (
    SELECT FROM celeriac.behind b
    WHERE b.lock_key = t.lock_key AND b.priority = t.priority AND b.due_at = t.scheduled_for AND b.id = i.id
    LIMIT 1) AS b
""")

AGAIN = text("""
SELECT count(*) FROM celeriac.forget(ARRAY(SELECT id FROM celeriac.history_named(CAST(:task_ids AS text[]))))
""")

MAKE_WAY = text("SELECT celeriac.make_way(:role, :unique_key, :by)")

#: How often insert-or-find is repeated. A repetition is due only if a competitor committed in between, so more than a
#: few in a row would be a bug.
ROUNDS = 100


#: The function that a caller's transaction brings along: returns those of some ids that belong to finished tasks, read
#: with a snapshot of its own.
Callers = Callable[[Sequence[str]], set[str]]


def enqueue(connection: Connection, tasks: Sequence[NewTask], *, callers: Callers | None = None) -> list[Receipt]:
    """Insert these tasks and return a receipt for each, in order.
    Tasks with one id, or one (role, unique key), share a row.

    `callers`: None in a transaction of the engine's own. In a caller's, whose snapshot may be too old to show which
    tasks have finished, it finds that out by a newer one. The caller's commit may go unnoticed, so no post-commit check
    is requested there. Raises SnapshotTooOld, on which the caller rolls back.
    """
    first: dict[str, NewTask] = {}
    for task in tasks:
        first.setdefault(task.task_id, task)
    receipts = _insert_or_find(connection, list(first.values()), callers) if tasks else {}
    return [receipts[t.task_id] if first[t.task_id] is t else _same_id(t, first[t.task_id], receipts) for t in tasks]


def as_they_stand(connection: Connection, receipts: Sequence[Receipt]) -> list[Receipt]:
    """Update the receipts of a committed transaction: by now a task may hold its lock key."""
    ids = [receipt.id for receipt in receipts if receipt.waits_for == "lock"]
    behind = set(connection.execute(STILL_BEHIND, {"ids": ids}).scalars()) if ids else set()
    return [replace(r, waits_for=None) if r.waits_for == "lock" and r.id not in behind else r for r in receipts]


def _same_id(task: NewTask, first: NewTask, receipts: Mapping[str, Receipt]) -> Receipt:
    receipt = receipts[task.task_id]
    return replace(receipt, is_new=False, differs=receipt.differs or not same_call(task, first))


def _insert_or_find(connection: Connection, tasks: Sequence[NewTask], callers: Callers | None) -> dict[str, Receipt]:
    receipts: dict[str, Receipt] = {}
    missing = list(tasks)
    for _ in range(ROUNDS):
        receipts |= _inserted(connection, missing, callers)
        missing = [t for t in missing if t.task_id not in receipts]
        if not missing:
            return receipts
        with lookups(connection):
            holders = connection.execute(EXISTING, {"rows": keys_as_json(missing)}).all()
        again = _give_back(connection, missing, holders)
        _make_way(connection, missing, {row.wanted for row in holders if row.expired})
        receipts |= {row.wanted: _existing(row) for row in holders if not row.expired and row.wanted not in again}
        missing = [t for t in missing if t.task_id not in receipts]
        if not missing:
            return receipts
    raise CeleriacError(f"{len(missing)} task(s) found their keys taken and free again {ROUNDS} times; try again")


def _give_back(connection: Connection, tasks: Iterable[NewTask], holders: Iterable[Row[Any]]) -> set[str]:
    """Delete finished tasks whose ids are used again, by a workflow that is applied again, and return those ids."""
    known = {task.task_id: task for task in tasks}
    again = {
        row.wanted
        for row in holders
        if row.due_at is None and row.task_id == row.wanted and (known[row.wanted].again or row.never_came)
    }
    if again:
        with lookups(connection):
            connection.execute(AGAIN, {"task_ids": sorted(again)})
    return again


def _existing(row: Row[Any]) -> Receipt:
    due_at = row.due_at if row.waits_for == "time" else None
    return Receipt(row.id, row.task_id, False, row.waits_for, due_at, bool(row.differs))


def _inserted(connection: Connection, tasks: Sequence[NewTask], callers: Callers | None) -> dict[str, Receipt]:
    named = {t.task_id: t for t in tasks if t.is_named}
    rows = connection.execute(INSERT_NAMED if named else INSERT, {"rows": as_json(tasks)}).all()
    rows = _but_finished(connection, rows, named, callers)
    if callers is None:
        look.ask(connection, [row.lock_key for row in rows if row.waits_for == "lock"])
    return {row.task_id: Receipt(row.id, row.task_id, True, row.waits_for) for row in rows}


def _but_finished(
    connection: Connection, rows: Sequence[Row[Any]], named: Mapping[str, NewTask], callers: Callers | None
) -> Sequence[Row[Any]]:
    """Undo and leave out rows whose id turns out to be a finished task's."""
    fresh = [row.task_id for row in rows if row.task_id in named]
    if not fresh:
        return rows
    finished, sees_all = connection.execute(FINISHED, {"task_ids": fresh}).one()
    if not sees_all:
        _refuse_unseen([named[task_id] for task_id in fresh], callers)
    if finished:
        connection.execute(UNDO, {"ids": [row.id for row in rows if row.task_id in finished]})
    return [row for row in rows if row.task_id not in finished]


def _refuse_unseen(fresh: Sequence[NewTask], callers: Callers | None) -> None:
    """Raise SnapshotTooOld for tasks that have finished unseen by this snapshot.

    In the engine's own transaction parts of a workflow need no check:
    they are enqueued with the outcome of their handler, and nobody else has their ids.
    """
    unseen = callers([t.task_id for t in fresh]) if callers else {t.task_id for t in fresh if not t.is_part}
    for task in fresh:
        if task.task_id in unseen:
            raise SnapshotTooOld(
                f"{task.role}: task_id={task.task_id!r:.100}: this task has finished since the transaction began, "
                "which cannot see it: enqueue in READ COMMITTED, or in a transaction of its own; nothing was enqueued"
            )


def finished(connection: Connection, task_ids: Sequence[str]) -> set[str]:
    """Return those of these ids that belong to finished tasks."""
    known, _ = connection.execute(FINISHED, {"task_ids": list(task_ids)}).one()
    return set(known)


def _make_way(connection: Connection, tasks: Iterable[NewTask], blocked: set[str]) -> None:
    """Cancel the expired tasks that hold these tasks' unique keys, as a worker's start would, to free the keys."""
    for task in tasks:
        if task.task_id in blocked:
            parameters = {"role": task.role, "unique_key": task.unique_key, "by": task.enqueued_by}
            connection.execute(MAKE_WAY, parameters)
