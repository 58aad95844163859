"""Idle: read how long a role has had nothing to do, and which schedule makes its next task."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

# If a role keeps no successes, its minutes tell when a task ended; the last 100 of them are read. BETWEEN: with "=
# :role" Postgres could walk an index by the minute alone, past all other roles' minutes.
IDLE = text("""
SELECT greatest(
        (SELECT completed_at FROM celeriac.last_ended(:role, 1)),
        (SELECT max(minute) FROM (
            SELECT minute, completed + failed AS ended FROM celeriac.minutes
            WHERE role BETWEEN :role AND :role ORDER BY role DESC, minute DESC LIMIT 100) AS m WHERE ended > 0)
    ) AS since, s.name AS schedule, s.next_run_at AS next_at
FROM (VALUES (1)) AS always LEFT JOIN LATERAL (
    SELECT name, next_run_at FROM celeriac.scheduled_jobs
    WHERE kind = 'task' AND target = :role AND enabled AND quarantined IS NULL ORDER BY next_run_at, name LIMIT 1
) AS s ON true
""")


@dataclass(frozen=True, slots=True)
class Idle:
    """An idle role. `since`: when its last task ended, None if unknown. `schedule`: it makes the next task."""

    since: datetime | None
    schedule: str | None
    next_at: datetime | None


def idle(connection: Connection, role: str) -> Idle:
    return Idle(*connection.execute(IDLE, {"role": role}).one())
