"""Settle: write outcomes, each if and only if its row is still this run's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, text

from celeriac.enqueue.insert import NewTask, line_up
from celeriac.run import lease
from celeriac.run.start import Started
from celeriac.settle import release
from celeriac.settle.look import lead
from celeriac.store.states import COMPLETED

#: No status of a row: what becomes of it, `release` says.
LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to. `kind` names the event it leaves, if the row alone does not tell.

    `status` pending means again: `delay` seconds from now (or `at`), with these counts and, if given, new arguments.
    `keep` False deletes the row instead. Status LOST: the run came to nothing, as if its worker had gone.
    """

    task: Started
    status: str
    kind: str | None = None
    result: Any = None
    error: str | None = None
    delay: float | None = None
    at: str | None = None
    retry_count: int = 0
    tries: int = 0
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    keep: bool = True


# INVARIANT of `mine`: the row is running under the token it was started with; anything else is refused. A task that was
# asked to stop is not tried again.
SETTLE = text("""
WITH outcome AS (
    SELECT * FROM jsonb_to_recordset(CAST(:outcomes AS jsonb)) AS (
        id bigint, token uuid, status text, kind text, result jsonb, error text, delay double precision,
        at timestamptz, retry_count integer, tries integer, args jsonb, kwargs jsonb, keep boolean)
), mine AS (
    SELECT t.id, t.lock_key, t.role, o.kind, o.result, o.error, o.retry_count, o.tries, o.keep, o.args, o.kwargs,
        CASE WHEN o.status = 'pending' AND t.cancel_requested_at IS NOT NULL THEN 'cancelled'
            ELSE o.status END AS status,
        coalesce(o.at, clock_timestamp() + o.delay * interval '1 second') AS due
    FROM outcome o JOIN worker_tasks t ON t.id = o.id AND t.token = o.token AND t.status = 'running'
    ORDER BY t.id FOR UPDATE OF t
), kept AS (
    UPDATE worker_tasks t
    SET status = m.status, result = m.result, error_message = m.error, retry_count = m.retry_count, tries = m.tries,
        completed_at = CASE WHEN m.status <> 'pending' THEN clock_timestamp() END,
        token = CASE WHEN m.status <> 'pending' THEN t.token END,
        waits_for = CASE WHEN m.status = 'pending' THEN 'time' END,
        scheduled_for = CASE WHEN m.status = 'pending' THEN m.due ELSE t.scheduled_for END,
        args = coalesce(m.args, t.args), kwargs = coalesce(m.kwargs, t.kwargs),
        cancel_requested_at = NULL, deadline_at = NULL, updated_at = clock_timestamp()
    FROM mine m WHERE t.id = m.id AND m.keep
), gone AS (
    DELETE FROM worker_tasks t USING mine m WHERE t.id = m.id AND NOT m.keep
), told AS (
    INSERT INTO task_events (task, role, kind, from_status, to_status, by, why)
    SELECT id, role, kind, 'running', status, :by, error FROM mine WHERE kind IS NOT NULL
)
SELECT id, lock_key FROM mine
""")

# The same for successes that are kept, which are most: no event, no new time, no new arguments; at half the cost.
COMPLETE = text("""
UPDATE worker_tasks t
SET status = 'completed', result = o.result, error_message = NULL, completed_at = clock_timestamp(),
    cancel_requested_at = NULL, deadline_at = NULL, updated_at = clock_timestamp()
FROM unnest(CAST(:ids AS bigint[]), CAST(:tokens AS uuid[]), CAST(:results AS jsonb[])) AS o (id, token, result)
WHERE t.id = o.id AND t.id = ANY(CAST(:ids AS bigint[])) AND t.token = o.token AND t.status = 'running'
RETURNING t.id, t.lock_key
""")

# A row that is gone was another run's, which finished it. Said again after an answer that was lost, it may be this
# run's own, or wait again because this run said so: only a row that somebody else holds tells of a late finish then.
REFUSED = text("""
INSERT INTO task_events (task, role, kind, from_status, to_status, by, why)
SELECT late.id, late.role, 'late_finish', t.status, t.status, :by, 'refused: the row was no longer this run''s'
FROM jsonb_to_recordset(CAST(:late AS jsonb)) AS late (id bigint, token uuid, role text)
LEFT JOIN worker_tasks t ON t.id = late.id
WHERE t.token IS DISTINCT FROM late.token AND NOT (:again AND t.token IS NULL)
""")


def settle(
    connection: Connection, outcomes: Sequence[Outcome], by: str, *, again: bool = False,
    follow_ups: Mapping[int, Sequence[NewTask]] | None = None,
) -> set[int]:  # fmt: skip
    """The ids whose outcome counts. The others were somebody else's by now: nothing changed, an event says so.

    `again`: the same was said before, and may have been committed although no answer came. `follow_ups` of an id come
    if it counts.
    """
    if not outcomes:
        return set()
    rows = [*_complete(connection, [o for o in outcomes if _is_plain(o)])]
    rows += _settle(connection, [o for o in outcomes if not _is_plain(o) and o.status != LOST], by)
    ended = [row.lock_key for row in rows if row.lock_key is not None]
    settled = {row.id for row in rows}
    new = [task for i, tasks in (follow_ups or {}).items() if i in settled for task in tasks]
    lead(connection, [*ended, *line_up(connection, new, given_up=ended)])
    late = [o.task for o in outcomes if o.task.id not in settled and o.status != LOST]
    if late:
        refused = json.dumps([{"id": t.id, "token": t.token, "role": t.role} for t in late])
        connection.execute(REFUSED, {"late": refused, "by": by, "again": again})
    return settled | {o.task.id for o in outcomes if o.status == LOST and _give_up(connection, o, by)}


def _give_up(connection: Connection, outcome: Outcome, by: str) -> bool:
    """Held first: `release` passes over what somebody has locked, a heartbeat for one."""
    task = outcome.task
    held = lease.hold(connection, task.id, task.token)
    if held:
        release.release(
            connection, [release.Held(task.id, task.token)], status="running", kind="lost", why=str(outcome.error),
            by=by, loss=True,
        )  # fmt: skip
    return held


def _is_plain(outcome: Outcome) -> bool:
    return outcome.status == COMPLETED and outcome.keep and outcome.kind is None


def _complete(connection: Connection, outcomes: Sequence[Outcome]) -> Sequence[Row[Any]]:
    if not outcomes:
        return []
    ordered = sorted(outcomes, key=lambda o: o.task.id)
    given = {"ids": [o.task.id for o in ordered], "tokens": [o.task.token for o in ordered]}
    results = [None if o.result is None else json.dumps(o.result) for o in ordered]
    return connection.execute(COMPLETE, given | {"results": results}).all()


def _settle(connection: Connection, outcomes: Sequence[Outcome], by: str) -> Sequence[Row[Any]]:
    if not outcomes:
        return []
    return connection.execute(SETTLE, {"outcomes": json.dumps([_row(o) for o in outcomes]), "by": by}).all()


_PLAIN = ("status", "kind", "result", "error", "delay", "at", "retry_count", "tries", "args", "kwargs", "keep")


def _row(outcome: Outcome) -> dict[str, Any]:
    row = {name: value for name in _PLAIN if (value := getattr(outcome, name)) is not None}
    return row | {"id": outcome.task.id, "token": outcome.task.token}
