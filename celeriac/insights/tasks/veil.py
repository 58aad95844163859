"""Masking for viewers who may not see calls: arguments, results and progress are hidden, and only the kind of an error
is shown. It works by the names of fields, whichever insight they come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from celeriac.insights.tasks.lists import ARGUMENT
from celeriac.store.redact import HIDDEN
from celeriac.store.states import RUNNING

#: Fields with a task's call, its result, its message's headers, and what its handler wrote to its log.
CALLS: Final = frozenset({"args", "kwargs", "arguments", "result", "progress", "headers", "line"})

#: Fields with the text of an error, or a dead letter's message.
ERROR_TEXTS: Final = frozenset({"error_message", "error", "message", "pattern", "traceback"})

#: Filters of a list that could be used to find out what it hides.
FILTERS: Final = ("error",)

_KIND = re.compile(r"([A-Za-z_][\w.]*): ")


def veiled(shown: Any) -> Any:
    """Mask rows, dataclasses and lists of them."""
    if isinstance(shown, Mapping):
        seen = {name: _field(str(name), value) for name, value in shown.items()}
        hidden = {"why": error(seen["why"])} if _is_attempt(shown) else {}
        return seen | hidden | ({"reason": error(seen["reason"])} if _is_letter(shown) else {})
    if is_dataclass(shown) and not isinstance(shown, type):
        return replace(
            shown, **{one.name: _field(one.name, getattr(shown, one.name)) for one in fields(shown) if one.init}
        )
    if isinstance(shown, tuple) and hasattr(shown, "_make"):
        return shown._make(map(veiled, shown))
    return [veiled(one) for one in shown] if isinstance(shown, list | tuple) else shown


def error(message: Any) -> Any:
    """Return an error's kind, if it has one."""
    if not isinstance(message, str) or not message:
        return message
    kind = _KIND.match(message)
    return f"{kind[1]}: {HIDDEN}" if kind else HIDDEN


def refused(asked: Mapping[str, Any]) -> list[str]:
    """Return the filters that a viewer without calls may not use."""
    return [name for name, value in asked.items() if value and (name in FILTERS or name.startswith(ARGUMENT))]


def _field(name: str, value: Any) -> Any:
    if name in CALLS or name.startswith(ARGUMENT):
        return _call(value)
    return error(value) if name in ERROR_TEXTS else veiled(value)


def _call(value: Any) -> Any:
    """Hide the values; the names of arguments show what a task is about, and nobody's data."""
    if isinstance(value, Mapping):
        return dict.fromkeys(value, HIDDEN)
    if isinstance(value, list | tuple):
        return [HIDDEN] * len(value)
    return None if value is None else HIDDEN


def _is_attempt(event: Mapping[str, Any]) -> bool:
    """Return whether `why` is a run's error rather than the reason an operator gave."""
    return "why" in event and event.get("from_status") == RUNNING


def _is_letter(shown: Mapping[str, Any]) -> bool:
    """Return whether it is a dead letter, whose reason may quote its arguments; other reasons are fixed sentences."""
    return "reason" in shown and "sender" in shown
