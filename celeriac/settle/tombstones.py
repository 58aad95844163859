"""Tombstones: failed rows for parts of a workflow that never come because an earlier part failed.

They are written with that part's outcome, so that a caller that waits for one of them gets an answer. If the earlier
part is retried and succeeds, the part itself takes its tombstone's place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, text

from celeriac.store import look


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A part that never comes. `after`: the id of the task before it. `result`: the exception as JSON. `headers`: the
    tasks that wait for it. `account`: that of the task before it, so that its customer's lists show it.
    """

    task_id: str
    role: str
    args: list[Any]
    kwargs: dict[str, Any]
    headers: dict[str, Any]
    error: str | None
    result: Any
    workflow: str
    barrier: str | None
    place: int | None
    after: int | None
    account: str = ""


# A part that is or was a task gets no tombstone: it has an end of its own.
BURY = text("""
WITH wanted AS (  -- of a chord that is told of itself and as its body, the one with a barrier
    SELECT DISTINCT ON (task_id) * FROM jsonb_to_recordset(CAST(:tombstones AS jsonb)) AS (
        task_id text, role text, args jsonb, kwargs jsonb, headers jsonb, error text, result jsonb, workflow text,
        barrier uuid, place integer, after bigint, account text)
    ORDER BY task_id, barrier
), buried AS (
    INSERT INTO celeriac.history (
        id, task_id, role, account, status, priority, scheduled_for, args, kwargs, headers, completed_at, result,
        error_message, retry_count, tries, max_rounds, losses, parent_id, workflow, barrier, place, created_at)
    SELECT nextval('celeriac.tasks_id_seq'), task_id, role, account, 'failed', 0, clock_timestamp(), args, kwargs,
        headers, clock_timestamp(), result, error, 0, 0, 1, 0, after, workflow, barrier, place, clock_timestamp()
    FROM wanted w
    WHERE (SELECT true FROM celeriac.tasks t WHERE t.task_id = w.task_id LIMIT 1) IS NULL
        AND (SELECT true FROM celeriac.history_named(ARRAY[w.task_id]) LIMIT 1) IS NULL
    RETURNING *
), fallen AS (
    SELECT count(celeriac.fall_out(
        id, task_id, role, account, headers, 'failed', error_message, workflow, barrier)) AS n FROM buried
), to_join AS (
    INSERT INTO celeriac.joins (barrier) SELECT DISTINCT barrier FROM buried WHERE barrier IS NOT NULL
)
SELECT DISTINCT CAST(barrier AS text) AS barrier FROM buried
WHERE barrier IS NOT NULL AND (SELECT n FROM fallen) IS NOT NULL
""")


def bury(connection: Connection, tombstones: Sequence[Tombstone]) -> None:
    """Write these tombstones; after the commit their barriers are checked, because they may no longer hold anything
    back.
    """
    rows = json.dumps([asdict(tombstone) for tombstone in tombstones])
    look.ask_joins(connection, connection.execute(BURY, {"tombstones": rows}).scalars())
