"""A role's pace: its interval of passes, its objective, and whether more tasks come than begin."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

#: Minutes in a row in which more tasks have to come than begin, before a role counts as falling behind.
MINUTES = 10

# Roles that keep no successes do not know how many tasks began: NULL is not less than anything.
PACE = text("""
SELECT r.role, coalesce(CAST(r.definition ->> 'every' AS double precision), 30) AS every,
    CAST(r.definition ->> 'wait_objective' AS double precision) AS objective, (
        SELECT count(*) FILTER (WHERE m.enqueued > m.started) FROM celeriac.minutes m
        WHERE m.role = r.role AND m.minute < u.until AND m.minute >= u.until - :minutes * interval '1 minute'
    ) >= :minutes AS falls_behind
FROM celeriac.roles r CROSS JOIN celeriac.minutes_until u
WHERE CAST(:role AS text) IS NULL OR r.role = :role ORDER BY r.role
""")


@dataclass(frozen=True, slots=True)
class Pace:
    """A role's pace. `every`: seconds between beat's passes. `objective`: seconds within which a task should start,
    None if the role has none. `falls_behind`: in each of the last ten minutes counted more tasks came than began.
    """

    every: float = 30.0
    objective: float | None = None
    falls_behind: bool = False


def pace(connection: Connection, role: str | None = None) -> dict[str, Pace]:
    """Return the pace by registered role, or of the given one."""
    rows = connection.execute(PACE, {"role": role, "minutes": MINUTES})
    return {row.role: Pace(row.every, row.objective, row.falls_behind) for row in rows}
