"""Tick: which schedules are due, each taken by one beat only, and advanced from when it was due."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sqlalchemy import Connection, text

INSTALL = text("""
INSERT INTO scheduled_jobs (name, every)
SELECT name, every FROM jsonb_to_recordset(CAST(:jobs AS jsonb)) AS j (name text, every double precision)
ORDER BY name
ON CONFLICT (name) DO UPDATE SET every = excluded.every, enabled = true,
    next_run_at = least(scheduled_jobs.next_run_at, statement_timestamp() + excluded.every * interval '1 second')
""")

# INVARIANT: the next instant lies on the grid of the last one, after now; a missed instant is made up for once.
DUE = text("""
WITH due AS (
    SELECT name FROM scheduled_jobs
    WHERE enabled AND next_run_at <= statement_timestamp() AND name = ANY(CAST(:names AS text[]))
    FOR UPDATE SKIP LOCKED
)
UPDATE scheduled_jobs j
SET last_run_at = j.next_run_at,
    next_run_at = j.next_run_at + j.every * interval '1 second' * greatest(1, ceil(
        extract(epoch FROM statement_timestamp() - j.next_run_at)::double precision / j.every))
FROM due WHERE j.name = due.name
RETURNING j.name
""")

NEXT = text("""
SELECT extract(epoch FROM min(next_run_at) - statement_timestamp()) FROM scheduled_jobs
WHERE enabled AND name = ANY(CAST(:names AS text[]))
""")


def install(connection: Connection, jobs: Mapping[str, float]) -> None:
    """Writes schedules (name → seconds); one that exists keeps its next instant unless the new period is shorter."""
    rows = [{"name": name, "every": every} for name, every in jobs.items()]
    connection.execute(INSTALL, {"jobs": json.dumps(rows)})


def due(connection: Connection, names: list[str]) -> list[str]:
    """The schedules this beat runs now."""
    return sorted(connection.execute(DUE, {"names": names}).scalars())


def seconds_to_next(connection: Connection, names: list[str]) -> float | None:
    seconds = connection.execute(NEXT, {"names": names}).scalar_one()
    return None if seconds is None else max(0.0, float(seconds))
