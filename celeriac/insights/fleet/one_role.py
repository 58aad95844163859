"""One role: its declaration beside the options in force, its handler's parameters, its pace, and its idle time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from celeriac.store.role_names import is_built_in

DECLARED = text("""
SELECT r.definition, r.otherwise, l.is_told, l.rate_limit, l.timeout, l.hard_timeout, l.updated_at
FROM celeriac.roles r LEFT JOIN celeriac.role_limits l ON l.role = r.role WHERE r.role = :role
""")

#: Options that operators may change.
LIMITS = ("rate_limit", "timeout", "hard_timeout")

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

REGISTERED = text("SELECT role FROM celeriac.roles WHERE NOT definition ? 'lane_of' ORDER BY role")

PARAMETERS = text("SELECT parameters FROM celeriac.roles WHERE role = :role")

#: Kinds of parameters that take several arguments, or cannot be given by name.
_NOT_BY_NAME = ("VAR_POSITIONAL", "VAR_KEYWORD", "POSITIONAL_ONLY")


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a role. `is_told`: the value is an operator's, in place of the declared one."""

    name: str
    declared: Any
    in_force: Any
    is_told: bool


@dataclass(frozen=True, slots=True)
class Otherwise:
    """A declaration that does not apply, because a newer one does, or another of the same release was started later.
    `options`: those that differ; None for one that the release does not know.
    """

    release: int
    at: datetime
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DeclaredRole:
    """A role as declared. `limited_at`: when its limits last changed. `otherwise`: another release's declaration."""

    options: list[Option]
    limited_at: datetime | None
    otherwise: Otherwise | None = None

    @property
    def is_as_declared(self) -> bool:
        return not any(option.is_told for option in self.options)


@dataclass(frozen=True, slots=True)
class Pace:
    """A role's pace. `every`: seconds between beat's passes. `objective`: seconds within which a task should start,
    None if the role has none. `falls_behind`: in each of the last ten minutes counted more tasks came than began.
    """

    every: float = 30.0
    objective: float | None = None
    falls_behind: bool = False


@dataclass(frozen=True, slots=True)
class Idle:
    """An idle role. `since`: when its last task ended, None if unknown. `schedule`: it makes the next task."""

    since: datetime | None
    schedule: str | None
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a role's handler. `default`: as JSON, None also if it cannot be written as JSON."""

    name: str
    required: bool
    default: Any


def declared(connection: Connection, role: str) -> DeclaredRole | None:
    """Return every option of a role's definition, in order; None for a role nobody declared."""
    row = connection.execute(DECLARED, {"role": role}).one_or_none()
    if row is None:
        return None
    in_force = dict(row.definition)
    if row.updated_at is not None:
        in_force["rate_limit"] = row.rate_limit
    if row.is_told:
        in_force |= {"timeout": row.timeout, "hard_timeout": row.hard_timeout}
    return DeclaredRole(
        [Option(name, value, in_force[name], in_force[name] != value) for name, value in row.definition.items()],
        row.updated_at,
        _otherwise(row.definition, row.otherwise),
    )


def _otherwise(definition: Mapping[str, Any], other: Mapping[str, Any] | None) -> Otherwise | None:
    if other is None or other["definition"] == definition:
        return None
    said = other["definition"]
    differing = {name: said.get(name) for name in {**definition, **said} if said.get(name) != definition.get(name)}
    return Otherwise(other["release"], datetime.fromisoformat(other["at"]), differing)


def pace(connection: Connection, role: str | None = None) -> dict[str, Pace]:
    """Return the pace by registered role, or of the given one."""
    rows = connection.execute(PACE, {"role": role, "minutes": MINUTES})
    return {row.role: Pace(row.every, row.objective, row.falls_behind) for row in rows}


def idle(connection: Connection, role: str) -> Idle:
    return Idle(*connection.execute(IDLE, {"role": role}).one())


def parameters(connection: Connection, role: str) -> list[Parameter]:
    """Return the parameters that can be given by name, in order; none for a role nobody declared."""
    declared = connection.execute(PARAMETERS, {"role": role}).scalar_one_or_none() or []
    named = [one for one in declared if one["kind"] not in _NOT_BY_NAME]
    return [Parameter(one["name"], "default" not in one, one.get("default")) for one in named]


def registered(connection: Connection) -> list[str]:
    """Return the declared roles, by name."""
    return [role for role in connection.execute(REGISTERED).scalars() if not is_built_in(role)]
