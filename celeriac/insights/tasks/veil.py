"""Masking for viewers who may not see calls: arguments, results and progress are hidden, and only the kind of an error
is shown. It works by the names of fields, whichever insight they come from: a text is shown where its field is listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from celeriac.insights.tasks.lists import ARGUMENT
from celeriac.insights.tasks.shown import SHOWN
from celeriac.store.quoted import with_quotes
from celeriac.store.redact import HIDDEN
from celeriac.store.states import RUNNING

#: Fields with a task's call, its result, its message's headers, and what its handler wrote to its log.
CALLS: Final = frozenset({"args", "kwargs", "arguments", "result", "progress", "headers", "line"})

#: Fields with the text of an error, or a dead letter's message.
ERROR_TEXTS: Final = frozenset({"error_message", "error", "message", "pattern", "traceback"})

#: Filters of a list that could be used to find out what it hides.
FILTERS: Final = ("error",)

#: An instant is nobody's data, in whichever field it is.
_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|[+-][0-9:]{2,5})?)?"
)

_KIND = re.compile(r"([A-Za-z_][\w.]*): ")


def veiled(shown: Any, name: str | None = None) -> Any:
    """Mask rows, dataclasses and lists of them. `name`: the field that this is the value of, if it is one's."""
    if isinstance(shown, str):
        return with_quotes(shown, error) if _is_shown(shown, name) else HIDDEN
    if isinstance(shown, Mapping):
        seen = {key: _field(str(key), value, name) for key, value in shown.items()}
        hidden = {"why": error(seen["why"])} if _is_attempt(shown) else {}
        return seen | hidden | ({"reason": error(seen["reason"])} if _is_letter(shown) else {})
    if is_dataclass(shown) and not isinstance(shown, type):
        return replace(
            shown, **{one.name: _field(one.name, getattr(shown, one.name)) for one in fields(shown) if one.init}
        )
    if isinstance(shown, tuple) and hasattr(shown, "_make"):
        row: Any = shown
        return row._make(_field(*field) for field in zip(row.__match_args__, shown, strict=True))
    if isinstance(shown, list | tuple):
        return [veiled(one, name) for one in shown]
    return _call(shown) if isinstance(shown, bytes | bytearray | memoryview) else shown


def error(message: Any) -> Any:
    """Return an error's kind, if it has one."""
    if not isinstance(message, str):
        return message if message is None or isinstance(message, int | float) else _call(message)
    if not message:
        return message
    kind = _KIND.match(message)
    return f"{kind[1]}: {HIDDEN}" if kind else HIDDEN


def refused(asked: Mapping[str, Any]) -> list[str]:
    """Return the filters that a viewer without calls may not use."""
    return [name for name, value in asked.items() if value and (name in FILTERS or name.startswith(ARGUMENT))]


def _is_shown(text: str, name: str | None) -> bool:
    return name is None or name in SHOWN or not text or _INSTANT.fullmatch(text) is not None


def _field(name: str, value: Any, within: str | None = None) -> Any:
    """`within`: the field of the mapping that has this one, whose keys may be no fields, such as roles."""
    if name in CALLS or name.startswith(ARGUMENT):
        return _call(value)
    if name in ERROR_TEXTS:
        return error(value)
    return veiled(value, within if name not in SHOWN and within in SHOWN else name)


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
