"""Finding the role of a schedule whose body does not name one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celeriac.api.problems import invalid
from celeriac.app import Celeriac
from celeriac.errors import BadArguments
from celeriac.roles.signature import Signature
from celeriac.store.built_in import is_built_in


def role_taking(app: Celeriac, arguments: Mapping[str, Any]) -> str:
    """Return the one role whose handler takes just these arguments. Raises Problem 422 if there is none, or several."""
    declared = [d for d in app.roles.own() if not is_built_in(d.role.name)]
    taking = [d.role.name for d in declared if arguments and _takes(d.signature, arguments)]
    if len(taking) != 1:
        takers = f"several do: {', '.join(taking)}" if taking else "none does"
        raise invalid("role", f"give a role; left out, one role has to take just these arguments, and {takers}")
    return taking[0]


def _takes(signature: Signature, arguments: Mapping[str, Any]) -> bool:
    try:
        signature.bind((), arguments)
    except BadArguments:
        return False
    return set(arguments) <= set(signature.names)
