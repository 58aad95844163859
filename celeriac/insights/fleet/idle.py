"""Idle: since when a role has had nothing to do, and what gives it something next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

# Of a role that keeps no success the minutes tell, of which the last 100 with anything of it are looked at. BETWEEN:
# were `role` said to be one value, an order by the minute alone would be as good, which passes by all other roles'.
IDLE = text("""
SELECT greatest(
        (SELECT completed_at FROM celeriac.history WHERE role = :role ORDER BY completed_at DESC LIMIT 1),
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
    """`since`: when a task of it last ended, None if that is not known any more. `schedule`: which makes the next."""

    since: datetime | None
    schedule: str | None
    next_at: datetime | None


def idle(connection: Connection, role: str) -> Idle:
    return Idle(*connection.execute(IDLE, {"role": role}).one())
