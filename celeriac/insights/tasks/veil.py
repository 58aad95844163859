"""What is shown to whom sees no calls: all that there is, but neither arguments, results nor progress, and of errors no
more than their kind. By the names of fields, whichever insight they come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from celeriac.insights.tasks.lists import ARGUMENT
from celeriac.store.redact import HIDDEN
from celeriac.store.states import RUNNING

#: What a task was called with, what came of it, what its message was, and what its handler wrote to its log.
CALLS: Final = frozenset({"args", "kwargs", "arguments", "result", "progress", "headers", "line"})

#: What an error says, and where a letter is told as it came.
ERROR_TEXTS: Final = frozenset({"error_message", "error", "message", "pattern", "traceback"})

#: The filters of a list by which one would find out what it hides.
FILTERS: Final = ("error",)

_KIND = re.compile(r"([A-Za-z_][\w.]*): ")


def veiled(shown: Any) -> Any:
    """Rows, dataclasses and lists of them."""
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
    """Its kind, if it has one."""
    if not isinstance(message, str) or not message:
        return message
    kind = _KIND.match(message)
    return f"{kind[1]}: {HIDDEN}" if kind else HIDDEN


def refused(asked: Mapping[str, Any]) -> list[str]:
    """Those of a list's filters that whoever sees no calls may not ask for."""
    return [name for name, value in asked.items() if value and (name in FILTERS or name.startswith(ARGUMENT))]


def _field(name: str, value: Any) -> Any:
    if name in CALLS or name.startswith(ARGUMENT):
        return _call(value)
    return error(value) if name in ERROR_TEXTS else veiled(value)


def _call(value: Any) -> Any:
    """Names of arguments tell what it is about, and nothing of whom."""
    if isinstance(value, Mapping):
        return dict.fromkeys(value, HIDDEN)
    if isinstance(value, list | tuple):
        return [HIDDEN] * len(value)
    return None if value is None else HIDDEN


def _is_attempt(event: Mapping[str, Any]) -> bool:
    """What a run ended with is its error; what an operator gave as reason is none."""
    return "why" in event and event.get("from_status") == RUNNING


def _is_letter(shown: Mapping[str, Any]) -> bool:
    """Of a dead letter, in whose reason the refusal of its arguments stands; other reasons are words of ours."""
    return "reason" in shown and "sender" in shown
