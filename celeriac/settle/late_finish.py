"""Late finishes: a run ends after its task was taken from it. Its outcome is refused, and an event records that."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Connection, text

from celeriac.store.started import Started

# An outcome that is sent again because the answer was lost may have been written the first time: then only a task that
# another ticket holds proves a late finish.
REFUSED = text("""
INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, by, why)
SELECT late.id, late.role, 'late_finish', t.status, t.status, :by, 'refused: the task was no longer this run''s'
FROM jsonb_to_recordset(CAST(:late AS jsonb)) AS late (id bigint, role text)
LEFT JOIN LATERAL (SELECT status, token FROM celeriac.tasks_with(ARRAY[late.id]) LIMIT 1) AS t ON true
WHERE NOT :again OR t.token IS NOT NULL
RETURNING task
""")


def tell(connection: Connection, late: Sequence[Started], by: str, *, again: bool) -> list[int]:
    """Record an event for each late finish and return the ids of those tasks. `again`: as in `write.settle`."""
    rows = json.dumps([{"id": task.id, "role": task.role} for task in late])
    return list(connection.execute(REFUSED, {"late": rows, "by": by, "again": again}).scalars())
