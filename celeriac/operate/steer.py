"""Steer: operators' moves of tasks, as far as a task's state allows them, in the caller's transaction.

Every function takes the row ids of one task or many, locks them in one order, and returns the result of each. A caller
with one task calls `.one()`, which raises a refusal. Each change writes an audit row and an event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import IntegrityError

from celeriac.errors import BadValue, IllegalMove, Unknown
from celeriac.operate import audit
from celeriac.operate.audit import AuditedTogether, Change
from celeriac.operate.cancel import cancel_all
from celeriac.operate.hasten import hasten as make_due
from celeriac.operate.prioritise import prioritise
from celeriac.roles.bounds import ANY_PRIORITY, PRIORITY, is_whole
from celeriac.store import look
from celeriac.store.connections import Database
from celeriac.store.failures import retry_deadlocks
from celeriac.store.plans import lookups
from celeriac.store.ready import placed
from celeriac.store.states import ALL, CLAIMED, PENDING, move_to, why_not

#: A boost raises a priority no higher than this.
BOOSTED_TO = 100

#: Tasks in one transaction of a bulk.
BATCH = 200

HOLD = text("SELECT count(*) FROM celeriac.hold(CAST(:ids AS bigint[]), false)")

# Runs once the tasks are locked, so that none of them moves any more.
HELD = text("""
SELECT t.id, t.task_id, t.role, t.status, t.priority, t.unique_key, t.retry_count, t.tries, t.losses, t.error_message,
    t.scheduled_for,
    t.cancel_requested_at IS NOT NULL AS asked,
    coalesce((r.definition #>> '{priority_range,0}')::integer, :low) AS low,
    coalesce((r.definition #>> '{priority_range,1}')::integer, :high) AS high,
    CASE WHEN t.unique_key IS NOT NULL AND t.completed_at IS NOT NULL THEN (
        SELECT o.id FROM celeriac.tasks o WHERE o.role = t.role AND o.unique_key = t.unique_key LIMIT 1) END AS held_by,
    coalesce(t.headers -> 'canvas' ? 'never_came', false) AS never_came
FROM celeriac.tasks_with(CAST(:ids AS bigint[])) t LEFT JOIN celeriac.roles r ON r.role = t.role
ORDER BY t.id
""")

# INVARIANT: a keyed task takes no lock key here; the post-commit check does. Priority gained by age is taken off. A
# chord's body waits again for those of its members that are retried as well.
RETRY = text(f"""
WITH gone AS (
    SELECT * FROM celeriac.forget(CAST(:ids AS bigint[]))
), again AS (
    INSERT INTO celeriac.tasks (
        id, task_id, role, account, lock_key, unique_key, priority, scheduled_for, expires_at, args, kwargs, headers,
        max_retries, max_rounds, timeout, parent_id, enqueued_by, created_at, workflow, barrier, place, retry_count,
        tries, losses, progress, queue)
    SELECT id, task_id, role, account, lock_key, unique_key, priority - aged, clock_timestamp(),
        CASE WHEN expires_at > clock_timestamp() THEN expires_at END, args, kwargs, headers, max_retries, max_rounds,
        timeout, parent_id, enqueued_by, created_at, workflow, barrier, place,
        CASE WHEN :goes_on THEN retry_count ELSE 0 END, CASE WHEN :goes_on THEN tries ELSE 0 END,
        CASE WHEN :goes_on THEN losses ELSE 0 END, CASE WHEN :goes_on THEN progress END,
        queue
    FROM gone
    RETURNING id, celeriac.lane(role, queue) AS role, account, lock_key, priority, scheduled_for AS due_at, losses,
        CAST(headers -> 'canvas' ->> 'awaits' AS uuid) AS awaits
), at_once AS (
    SELECT * FROM again WHERE awaits IS NULL
), {placed("at_once")}, to_barriers AS (
    INSERT INTO celeriac.barriers (id, barrier, role) SELECT id, awaits, role FROM again WHERE awaits IS NOT NULL
), to_join AS (
    INSERT INTO celeriac.joins (barrier) SELECT DISTINCT awaits FROM again WHERE awaits IS NOT NULL
), told AS (
    INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, by, why)
    SELECT id, role, 'retry_asked', status, 'pending', :by, nullif(:why, '') FROM gone
)
SELECT lock_key, CAST(awaits AS text) AS awaits FROM again
""")


@dataclass(frozen=True, slots=True)
class Steered:
    """The result for the requested tasks: the changes, why others were refused, and ids without a row."""

    changed: list[Change] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)

    def one(self) -> Change:
        """Return the change of the only requested task. Raises Unknown or IllegalMove."""
        for task in self.missing:
            raise Unknown(f"there is no task {task}; a finished one may be pruned")
        for why in self.refused.values():
            raise IllegalMove(f"{why}; nothing was changed")
        return self.changed[0]

    @property
    def asked(self) -> int:
        """The number of running tasks, whose workers are requested to stop them."""
        return sum("asked" in (change.after or {}) for change in self.changed)

    def __add__(self, other: Steered) -> Steered:
        return Steered(self.changed + other.changed, self.refused | other.refused, self.missing + other.missing)


Move = Callable[[Connection, Sequence[int]], Steered]


def set_priority(connection: Connection, ids: Sequence[int], priority: int, *, by: str, why: str = "") -> Steered:
    """Set a priority. It applies to waiting tasks at once, to a running one when it waits again."""
    _refuse_priority(priority)
    return _prioritise(connection, ids, lambda _: priority, action="priority", by=by, why=why)


def boost(connection: Connection, ids: Sequence[int], boost: int, *, by: str, why: str = "") -> Steered:
    """Raise the priority by so much, to 100 or the top of the role's range at most, and never lower it."""
    if not is_whole(1, ANY_PRIORITY[1])(boost):
        raise BadValue(f"boost={boost!r}: give a whole number from 1 to {ANY_PRIORITY[1]:,}")

    def raised(row: Row[Any]) -> int:
        return int(max(row.priority, min(row.priority + boost, BOOSTED_TO, row.high)))

    return _prioritise(connection, ids, raised, action="boost", by=by, why=why)


def hasten(connection: Connection, ids: Sequence[int], *, by: str, why: str = "") -> Steered:
    """Make tasks due now that wait for their time, whether planned or between two attempts."""
    rows, result = lock_allowed(connection, ids, "hasten")
    changes = []
    for row in rows:
        if make_due(connection, row.task_id, by=by) is None:
            result.refused[row.id] = "the task does not wait for its time"
        else:
            before = {"scheduled_for": row.scheduled_for.isoformat()}
            changes.append(Change(str(row.id), before, {"scheduled_for": "now"}))
    return audited(connection, result, changes, action="hasten", by=by, why=why)


def retry(
    connection: Connection, ids: Sequence[int], *, by: str, why: str = "", goes_on: bool = False
) -> Steered:  # fmt: skip
    """Make failed or cancelled tasks wait again, with all attempts; behind the lock holder of their key, if there is
    one.

    `goes_on`: continue where the task stopped. Progress stays, and attempts are counted on: if they are used up, the
    next failure is final. A task is refused if another unfinished task has taken its unique key.
    """
    rows, result = lock_allowed(connection, ids, "retry")
    for row in rows:
        if row.held_by is not None:
            result.refused[row.id] = f"task {row.held_by} has its unique key {row.unique_key!r} by now"
        elif row.never_came:
            result.refused[row.id] = (
                "it never came, as a task before it in its workflow failed: retry that one; where its call was "
                "refused, as its error says, enqueue it anew"
            )
    rows = _first_of_each_key([row for row in rows if row.id not in result.refused], result)
    changed = _retry(connection, rows, result, by=by, why=why, goes_on=goes_on)
    after = {"status": PENDING} | ({} if goes_on else {"retry_count": 0, "tries": 0, "losses": 0})
    return audited(connection, result, [_change(row, after) for row in changed], action="retry", by=by, why=why)


def cancel(connection: Connection, ids: Sequence[int], *, by: str, why: str = "") -> Steered:
    """Cancel tasks: at once, or, for a running one, by a request to its worker; `after` then has `asked`."""
    rows, result = lock_allowed(connection, ids, "cancel")
    done = cancel_all(connection, [row.task_id for row in rows], by=by, why=why or "cancelled")
    changes = [
        _change(row, {"status": row.status, "asked": True} if done[row.task_id] == "asked" else {"status": "cancelled"})
        for row in rows
    ]
    return audited(connection, result, changes, action="cancel", by=by, why=why)


def set_status(connection: Connection, ids: Sequence[int], status: str, *, by: str, why: str = "") -> Steered:
    """Move to a status: `pending` retries, `failed` and `cancelled` cancel; only the task's worker sets others.

    A task that waits or is claimed is `pending` already: it stays as it is, without an event.
    """
    if status not in ALL:
        raise BadValue(f"status={status!r}: give one of {', '.join(ALL)}")
    if move_to(status) == "retry":
        done = retry(connection, ids, by=by, why=why)
        waiting = [row for row in _rows(connection, [*done.refused]) if row.status in (PENDING, CLAIMED)]
        refused = {i: why for i, why in done.refused.items() if i not in {row.id for row in waiting}}
        return Steered(done.changed + [_change(row, {"status": row.status}) for row in waiting], refused, done.missing)
    if move_to(status) == "cancel":
        return cancel(connection, ids, by=by, why=why)
    rows, result = lock_allowed(connection, ids, "cancel")
    refused = {row.id: f"the task is {row.status}: only its worker can make it {status}" for row in rows}
    return Steered([], result.refused | refused, result.missing)


def in_batches(
    database: Database,
    ids: Iterable[int],
    move: Move,
    *,
    patience: float | None = None,
    many: AuditedTogether | None = None,
) -> Iterator[Steered]:
    """Apply the move to many tasks, a bounded transaction at a time; it stops when the caller stops iterating.

    `patience`: as for `Database.transaction`. `many`: they share a row of the audit trail.
    """
    left = iter(ids)
    while some := list(islice(left, BATCH)):
        yield retry_deadlocks(partial(_batch, database, some, move, patience, many))


def _batch(
    database: Database, ids: Sequence[int], move: Move, patience: float | None, many: AuditedTogether | None
) -> Steered:
    with database.transaction(patience=patience) as connection:
        if many is None:
            return move(connection, ids)
        with audit.as_one(many):
            done = move(connection, ids)
    many.is_written = many.is_written or bool(done.changed)
    return done


def lock_allowed(connection: Connection, ids: Sequence[int], move: str) -> tuple[list[Row[Any]], Steered]:
    """Lock the tasks; return the rows that allow the move, and a result with the others refused."""
    possible = [i for i in ids if 0 < i < 2**63]
    connection.execute(HOLD, {"ids": possible})
    rows = _rows(connection, possible)
    refused = {row.id: why for row in rows if (why := why_not(move, row.status)) is not None}
    existing = {row.id for row in rows}
    result = Steered([], refused, [i for i in dict.fromkeys(ids) if i not in existing])
    return [row for row in rows if row.id not in refused], result


def _rows(connection: Connection, ids: Sequence[int]) -> list[Row[Any]]:
    low, high = ANY_PRIORITY
    with lookups(connection):
        return list(connection.execute(HELD, {"ids": list(ids), "low": low, "high": high})) if ids else []


def _prioritise(
    connection: Connection, ids: Sequence[int], wanted: Callable[[Row[Any]], int], *, action: str, by: str, why: str
) -> Steered:
    rows, result = lock_allowed(connection, ids, "prioritise")
    for row in rows:
        if not row.low <= wanted(row) <= row.high:
            result.refused[row.id] = f"priorities of {row.role} go from {row.low:,} to {row.high:,}"
    rows = [row for row in rows if row.id not in result.refused]
    prioritise(connection, {row.id: wanted(row) for row in rows}, by=by, why=why)
    changes = [Change(str(row.id), {"priority": row.priority}, {"priority": wanted(row)}) for row in rows]
    return audited(connection, result, changes, action=action, by=by, why=why)


def _refuse_priority(priority: int) -> None:
    if not PRIORITY.fits(priority):
        raise BadValue(f"priority={priority!r}: give {PRIORITY.right}")


def _first_of_each_key(rows: Sequence[Row[Any]], result: Steered) -> list[Row[Any]]:
    """Keep one task per unique key: the newest. The others are refused."""
    newest = {(row.role, row.unique_key): row for row in rows if row.unique_key is not None}
    for row in rows:
        if row.unique_key is not None and newest[row.role, row.unique_key] is not row:
            holder = newest[row.role, row.unique_key].id
            result.refused[row.id] = f"task {holder} has the same unique key {row.unique_key!r} and is retried instead"
    return [row for row in rows if row.id not in result.refused]


def _retry(
    connection: Connection, rows: Sequence[Row[Any]], result: Steered, *, by: str, why: str, goes_on: bool
) -> Sequence[Row[Any]]:
    """Retry tasks and return them. If a unique key was taken since it was checked, each task is tried alone."""
    if not rows:
        return []
    try:
        with connection.begin_nested():
            parameters = {"ids": [row.id for row in rows], "by": by, "why": why, "goes_on": goes_on}
            with lookups(connection):
                again = connection.execute(RETRY, parameters).all()
    except IntegrityError:
        if len(rows) == 1:
            result.refused[rows[0].id] = f"another task has its unique key {rows[0].unique_key!r} by now"
            return []
        return [done for row in rows for done in _retry(connection, [row], result, by=by, why=why, goes_on=goes_on)]
    look.ask(connection, [row.lock_key for row in again if row.awaits is None])
    look.ask_joins(connection, [row.awaits for row in again])
    return rows


def _change(row: Row[Any], after: Mapping[str, Any]) -> Change:
    before = {"status": row.status, "retry_count": row.retry_count, "tries": row.tries, "losses": row.losses}
    before |= {"asked": True} if row.asked else {}
    before |= {"error_message": row.error_message} if row.error_message is not None else {}
    return Change(str(row.id), {k: v for k, v in before.items() if k in after or k == "error_message"}, after)


def audited(
    connection: Connection, result: Steered, changes: list[Change], *, action: str, by: str, why: str
) -> Steered:
    audit.write(connection, action, "task", changes, by=by, why=why)
    return Steered(changes, result.refused, result.missing)
