"""Parameters of the handlers of registered roles, for forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from celeriac.store.role_names import is_built_in

REGISTERED = text("SELECT role FROM celeriac.roles WHERE NOT definition ? 'lane_of' ORDER BY role")

PARAMETERS = text("SELECT parameters FROM celeriac.roles WHERE role = :role")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a role's handler. `default`: as JSON, None also if it cannot be written as JSON."""

    name: str
    required: bool
    default: Any


#: Kinds of parameters that take several arguments, or cannot be given by name.
_NOT_BY_NAME = ("VAR_POSITIONAL", "VAR_KEYWORD", "POSITIONAL_ONLY")


def parameters(connection: Connection, role: str) -> list[Parameter]:
    """Return the parameters that can be given by name, in order; none for a role nobody declared."""
    declared = connection.execute(PARAMETERS, {"role": role}).scalar_one_or_none() or []
    named = [one for one in declared if one["kind"] not in _NOT_BY_NAME]
    return [Parameter(one["name"], "default" not in one, one.get("default")) for one in named]


def registered(connection: Connection) -> list[str]:
    """Return the declared roles, by name."""
    return [role for role in connection.execute(REGISTERED).scalars() if not is_built_in(role)]
