"""What a schedule may be: whatever its tick would only find out later is refused when it is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from celeriac.api.problems import from_refusal, invalid
from celeriac.app import Celeriac
from celeriac.errors import BadArguments, ConfigurationError, EnqueueRefused
from celeriac.expressions import parse
from celeriac.intake import new_task
from celeriac.roles import Signature
from celeriac.schedules import Entry


def refuse_what_cannot_run(app: Celeriac, entry: Entry) -> None:
    """An expression, a zone, a role or arguments that cannot be. Raises Problem 422."""
    _try("cron_expression", lambda: parse(entry.cron_expression, "UTC"))
    _try("timezone", lambda: parse(entry.cron_expression, entry.timezone))
    _try("misfire_grace", entry.check)
    if entry.kind == "task":
        _refuse_bad_call(app, entry)


def role_taking(app: Celeriac, arguments: Mapping[str, Any]) -> str:
    """The one role whose handler takes just these arguments. Raises Problem 422 if there is none, or several."""
    taking = [d.role.name for d in app.roles.all() if arguments and _takes(d.signature, arguments)]
    if len(taking) != 1:
        found = f"several do: {', '.join(taking)}" if taking else "none does"
        raise invalid("role", f"give a role; left out, one role has to take just these arguments, and {found}")
    return taking[0]


def _try(field: str, act: Callable[[], object]) -> None:
    try:
        act()
    except ConfigurationError as error:
        raise invalid(field, str(error)) from error


def _refuse_bad_call(app: Celeriac, entry: Entry) -> None:
    limit = app.settings.max_argument_bytes
    try:
        role, signature = app.role_named(entry.target)
        new_task(role, signature, "a check", (), entry.kwargs, limit=limit, priority=entry.priority)
    except EnqueueRefused as error:
        raise from_refusal(error) from error


def _takes(signature: Signature, arguments: Mapping[str, Any]) -> bool:
    try:
        signature.bind((), arguments)
    except BadArguments:
        return False
    return set(arguments) <= set(signature.names)
