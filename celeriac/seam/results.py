"""Reads of rows for `AsyncResult` and `GroupResult`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from celery.exceptions import TaskRevokedError
from celery.result import GroupResult
from sqlalchemy import Connection, Row, text

from celeriac.canvas.join import NEEDED
from celeriac.errors import CeleriacError
from celeriac.seam.poller import Progress
from celeriac.store import states
from celeriac.store.encoding import legible, revived

META = text("""
WITH found AS MATERIALIZED (
    SELECT t.* FROM unnest(CAST(:task_ids AS text[])) AS i (task_id), LATERAL (
        SELECT * FROM celeriac.tasks WHERE task_id = i.task_id LIMIT 1) AS t
), held AS MATERIALIZED (
    SELECT unnest(ids) AS id, worker_id FROM celeriac.tickets WHERE ids && ARRAY(SELECT id FROM found)
)
SELECT id, task_id, CASE WHEN h.id IS NULL THEN 'pending' WHEN worker_id IS NULL THEN 'claimed' ELSE 'running' END
    AS status, NULL AS result, error_message, NULL AS completed_at, retry_count, progress, role, args, kwargs,
    worker_id,
    progress -> 'waits' = jsonb_build_array(retry_count, tries, losses, extract(epoch FROM started_at)) AS still_waits
FROM found LEFT JOIN held h USING (id)
UNION ALL
SELECT id, task_id, status, result, error_message, completed_at, retry_count, progress, role, args, kwargs, worker_id,
    false
FROM celeriac.history_named(CAST(:task_ids AS text[]))
""")

# A task that has ended is in the history, or nowhere.
OVER = text("SELECT task_id FROM celeriac.history_named(CAST(:task_ids AS text[]))")

FAILED = text("""
SELECT task_id FROM celeriac.history_named(CAST(:task_ids AS text[])) WHERE status <> 'completed'
""")

# `member_of`: the group that the child was enqueued with. These have the group of another task, which does not count: a
# body its members', a chain's next link the chain's, a task added to a chord the adding task's. A task made by
# `celeriac.fall_out` is no child.
CHILDREN = text("""
WITH parent AS MATERIALIZED (
    SELECT headers -> 'canvas' ->> 'group' AS own,
        headers -> 'canvas' -> 'chain' -> -1 -> 'options' ->> 'group_id' AS following
    FROM celeriac.history_with(ARRAY[CAST(:id AS bigint)]) LIMIT 1
), child AS (
    SELECT id, task_id, headers -> 'canvas' AS canvas FROM celeriac.tasks WHERE parent_id = :id
    UNION ALL
    SELECT id, task_id, headers -> 'canvas' AS canvas FROM celeriac.history_under(:id)
)
SELECT c.task_id, CASE
    WHEN NOT EXISTS (SELECT FROM parent WHERE c.canvas ->> 'group' IN (own, following, c.canvas ->> 'awaits'))
    THEN c.canvas ->> 'group' END AS member_of
FROM child c WHERE c.canvas -> 'fall_out' IS NULL ORDER BY c.id
""")

# The handler's last stored progress.
PROGRESS = text("""
SELECT t.task_id, t.progress, false AS is_over
FROM unnest(CAST(:task_ids AS text[])) AS i (task_id), LATERAL (
    SELECT * FROM celeriac.tasks WHERE task_id = i.task_id LIMIT 1) AS t
UNION ALL
SELECT task_id, progress, true FROM celeriac.history_named(CAST(:task_ids AS text[]))
""")

SAVE = text("""
INSERT INTO celeriac.group_results (id, result) VALUES (:id, CAST(:result AS jsonb))
ON CONFLICT (id) DO UPDATE SET result = excluded.result, saved_at = clock_timestamp()
""")
RESTORE = text("SELECT result FROM celeriac.group_results WHERE id = :id")
DELETE = text("DELETE FROM celeriac.group_results WHERE id = :id")

# A member's result stays until the body it goes to has finished, which may fail and run again.
FORGET = text(f"""
SELECT count(*) FROM celeriac.forget(ARRAY(
    SELECT h.id FROM celeriac.history_named(ARRAY[CAST(:task_id AS text)]) h
    WHERE NOT (h.barrier IS NOT NULL AND {NEEDED})))
""")

TELL = text("UPDATE celeriac.tasks SET progress = CAST(:progress AS jsonb) WHERE task_id = :task_id")

# A state set for a task that no process runs holds until one does: each run changes at least one value of `waits`.
TELL_OF = text("""
UPDATE celeriac.tasks t SET progress = CAST(:progress AS jsonb) || CASE
    WHEN EXISTS (SELECT FROM celeriac.tickets WHERE ids && ARRAY[t.id] AND worker_id IS NOT NULL)
    THEN '{}' ELSE jsonb_build_object(
        'waits', jsonb_build_array(retry_count, tries, losses, extract(epoch FROM started_at))) END
WHERE task_id = :task_id
""")

#: Keys in a row's progress: the state and meta of `update_state`, and the mark of a state set while the task waits.
STATE, STATE_META, WAITS = "celery_state", "meta", "waits"

Error = Callable[[Any], BaseException]


def over(connection: Connection, task_ids: Iterable[str]) -> list[str]:
    """Return which of the tasks have ended."""
    return list(connection.execute(OVER, {"task_ids": list(task_ids)}).scalars())


def failed(connection: Connection, task_ids: Iterable[str]) -> set[str]:
    """Return which of the tasks failed or were cancelled."""
    return set(connection.execute(FAILED, {"task_ids": list(task_ids)}).scalars())


def metas(connection: Connection, task_ids: Iterable[str], error: Error) -> dict[str, dict[str, Any]]:
    """Return metas by task id, without children; tasks without a row are PENDING. `error`: JSON to exception."""
    wanted = list(task_ids)
    rows = {row.task_id: row for row in connection.execute(META, {"task_ids": wanted})}
    return {task_id: _meta(rows[task_id], error) if task_id in rows else _unknown(task_id) for task_id in wanted}


def progress(connection: Connection, task_ids: Iterable[str]) -> dict[str, Progress]:
    """Return progress by task id; tasks without a row are left out."""
    rows = connection.execute(PROGRESS, {"task_ids": list(task_ids)})
    return {row.task_id: Progress(_of_handler(row.progress), row.is_over) for row in rows}


def _of_handler(stored: Any) -> Any:
    """Return the value that `progress()` stored, or the meta of `update_state()`."""
    if isinstance(stored, dict) and STATE in stored:
        return revived(stored.get(STATE_META))
    return stored


def children(connection: Connection, row_id: int) -> list[Any]:
    """Return a task's children as Celery's result tuples; the members of a group as one."""
    tuples: dict[str, Any] = {}
    for row in connection.execute(CHILDREN, {"id": row_id}):
        child = ((row.task_id, None), None)
        if row.member_of is None:
            tuples[row.task_id] = child
        else:
            tuples.setdefault(row.member_of, ((row.member_of, None), []))[1].append(child)
    return list(tuples.values())


def save_group(connection: Connection, group_id: str, result: Any) -> None:
    connection.execute(SAVE, {"id": group_id, "result": json.dumps(result)})


def restore_group(connection: Connection, group_id: str) -> Any:
    """Return Celery's tuple of the group, None if it is not saved."""
    return connection.execute(RESTORE, {"id": group_id}).scalar_one_or_none()


def delete_group(connection: Connection, group_id: str) -> None:
    connection.execute(DELETE, {"id": group_id})


def tell(connection: Connection, task_id: str, state: str) -> None:
    """Set the state of an unfinished task, which others and its own handler can read while it runs."""
    connection.execute(TELL, {"task_id": task_id, "progress": json.dumps({STATE: state})})


def tell_of(connection: Connection, task_id: str, state: dict[str, Any]) -> bool:
    """Set the state of an unfinished task other than this run's; return whether there is such a task."""
    return bool(connection.execute(TELL_OF, {"task_id": task_id, "progress": json.dumps(state)}).rowcount)


def forget(connection: Connection, task_id: str) -> None:
    connection.execute(FORGET, {"task_id": task_id})


def _unknown(task_id: str) -> dict[str, Any]:
    return {"task_id": task_id, "status": "PENDING", "result": None, "traceback": None}


def _meta(row: Row[Any], error: Error) -> dict[str, Any]:
    status, result, traceback = _state(row), None, None
    if _says_itself(row):
        status, result = row.progress[STATE], revived(row.progress.get(STATE_META))
    elif status == "SUCCESS":
        result = revived(row.result)
    elif row.result is not None:
        result = error(revived(row.result))
        traceback = row.result.get("traceback") if isinstance(row.result, dict) else None
    elif row.error_message is not None:
        kind = TaskRevokedError if row.status == states.CANCELLED else CeleriacError
        result = kind(row.error_message)
    return {
        "task_id": row.task_id, "status": status, "result": result, "traceback": traceback,
        "date_done": row.completed_at, "name": row.role, "args": legible(row.args), "kwargs": legible(row.kwargs),
        "worker": row.worker_id, "retries": row.retry_count, "queue": None, "id": row.id,
    }  # fmt: skip


def _says_itself(row: Row[Any]) -> bool:
    """Return whether its state was set by `update_state`: by its handler, or by others while it waits."""
    progress = row.progress
    if not isinstance(progress, dict) or STATE not in progress:
        return False
    if WAITS in progress:
        return bool(row.still_waits) and row.status in (states.PENDING, states.CLAIMED)
    return row.status == states.RUNNING or (row.status == states.COMPLETED and states.STAYS in progress)


def _state(row: Row[Any]) -> str:
    return "RETRY" if row.status == states.PENDING and row.retry_count else states.CELERY[row.status]


def shape(members: Iterable[Any]) -> list[Any]:
    """Return the members' ids, with each group's in a list of its own."""
    return [shape(member.results) if isinstance(member, GroupResult) else member.id for member in members]
