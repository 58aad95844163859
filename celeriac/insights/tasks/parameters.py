"""Parameters: what the handlers of registered roles take, for forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from celeriac.store.built_in import is_built_in

REGISTERED = text("SELECT role FROM celeriac.roles ORDER BY role")

PARAMETERS = text("SELECT parameters FROM celeriac.roles WHERE role = :role")


@dataclass(frozen=True, slots=True)
class Parameter:
    """Of a role's handler. `default`: as JSON has it, None also where that has no such value."""

    name: str
    required: bool
    default: Any


#: Kinds of parameters that stand for several arguments, or for none by name.
_NOT_BY_NAME = ("VAR_POSITIONAL", "VAR_KEYWORD", "POSITIONAL_ONLY")


def parameters(connection: Connection, role: str) -> list[Parameter]:
    """Those that are given by name, in order; none of a role nobody declared."""
    declared = connection.execute(PARAMETERS, {"role": role}).scalar_one_or_none() or []
    named = [one for one in declared if one["kind"] not in _NOT_BY_NAME]
    return [Parameter(one["name"], "default" not in one, one.get("default")) for one in named]


def registered(connection: Connection) -> list[str]:
    """The roles that somebody has declared, by name."""
    return [role for role in connection.execute(REGISTERED).scalars() if not is_built_in(role)]
