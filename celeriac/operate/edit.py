"""Edit: change the arguments of a waiting task."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

from celeriac.operate.audit import Change
from celeriac.operate.steer import Steered, audited, lock_allowed
from celeriac.store.plans import lookups
from celeriac.store.redact import HIDDEN

# The progress of a role with secrets is hidden, because it is searched for those of its row, which will be others.
EDIT = text("""
WITH names AS (
    SELECT coalesce(array_agg(name ORDER BY name), '{}') AS others
    FROM jsonb_object_keys(CAST(:was AS jsonb) || CAST(:kwargs AS jsonb)) AS n (name)
    WHERE CAST(:was AS jsonb) -> name IS DISTINCT FROM CAST(:kwargs AS jsonb) -> name
), changed AS (
    UPDATE celeriac.tasks t SET kwargs = CAST(:kwargs AS jsonb), updated_at = clock_timestamp(),
        progress = CASE WHEN t.progress IS NULL OR NOT EXISTS (
            SELECT FROM celeriac.roles r WHERE r.role = t.role AND r.definition -> 'sensitive' <> '[]'
        ) THEN t.progress ELSE to_jsonb(CAST(:hidden AS text)) END
    WHERE id = :id AND kwargs = CAST(:was AS jsonb) RETURNING id, role
), told AS (
    INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, by, why)
    SELECT id, role, 'edit', 'pending', 'pending', :by,
        concat_ws(': ', array_to_string(others, ', '), nullif(:why, '')) FROM changed, names
)
SELECT others FROM changed, names
""")


# A waiting task's call, including the values its role calls sensitive, which no surface reads.
CALL = text("SELECT args, kwargs FROM celeriac.tasks WHERE id = :id")


def call_of(connection: Connection, task: int) -> tuple[Any, Any] | None:
    """Return the task's arguments, for an edit alone: never show them. None if it has ended."""
    row = connection.execute(CALL, {"id": task}).one_or_none()
    return None if row is None else (row.args, row.kwargs)


def edit(
    connection: Connection, ids: Sequence[int], was: Mapping[str, Any], kwargs: str, *, by: str, why: str = ""
) -> Steered:  # fmt: skip
    """Replace the keyword arguments (JSON) of waiting tasks; keys stay. A task is refused if its arguments are not
    `was`. Events and the audit trail name the changed arguments, not their values.
    """
    rows, result = lock_allowed(connection, ids, "edit")
    parameters, changes = {"was": json.dumps(was), "kwargs": kwargs, "by": by, "why": why, "hidden": HIDDEN}, []
    for row in rows:
        with lookups(connection):
            names = connection.execute(EDIT, parameters | {"id": row.id}).scalar_one_or_none()
        if names is None:
            result.refused[row.id] = "somebody gave it other arguments meanwhile"
        else:
            changes.append(Change(str(row.id), None, {"arguments": names}))
    return audited(connection, result, changes, action="edit", by=by, why=why)
