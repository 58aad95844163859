"""A role's declaration, beside the options in force because operators changed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

DECLARED = text("""
SELECT r.definition, r.otherwise, l.is_told, l.rate_limit, l.timeout, l.hard_timeout, l.updated_at
FROM celeriac.roles r LEFT JOIN celeriac.role_limits l ON l.role = r.role WHERE r.role = :role
""")

#: Options that operators may change.
LIMITS = ("rate_limit", "timeout", "hard_timeout")


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
    """A role as declared. `limited_at`: when its limits were last changed or declared, None if it has none.
    `otherwise`: another release's declaration, None if all declare the same.
    """

    options: list[Option]
    limited_at: datetime | None
    otherwise: Otherwise | None = None

    @property
    def is_as_declared(self) -> bool:
        return not any(option.is_told for option in self.options)


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
