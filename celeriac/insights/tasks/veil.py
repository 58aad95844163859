"""Masking for viewers who may not see calls: arguments, results, progress, and all of an error but its kind.

It goes by the names of fields, whichever insight they come from: a text is shown only if its field is in `SHOWN`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from celeriac.insights.tasks.lists import ARGUMENT
from celeriac.store.messages import is_marked, with_quotes
from celeriac.store.redact import HIDDEN
from celeriac.store.states import RUNNING

#: Fields with a task's call, its result, its message's headers, and what its handler wrote to its log.
CALLS: Final = frozenset({"args", "kwargs", "arguments", "result", "progress", "headers", "line"})

#: Fields with the text of an error, or a dead letter's message.
ERROR_TEXTS: Final = frozenset({"error_message", "error", "message", "pattern", "traceback"})

#: Filters of a list by which a viewer could find out what the list hides.
FILTERS: Final = ("error",)

#: Alerts that quote errors, and the text before a schedule's error: older releases' rows quote without marks.
QUOTING: Final = frozenset({"fails_now", "account_fails"})
CANNOT_RUN: Final = "it cannot run: "

#: An instant is never private, whatever its field.
_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|[+-][0-9:]{2,5})?)?"
)

_KIND = re.compile(r"([A-Za-z_][\w.]*): ")

#: Names and keys, words for states, and sentences of the engine, in which an error's text is marked (`quoted`).
SHOWN: Final = frozenset(
    {
        "about", "account", "accounts", "action", "awaits", "backing_off", "backoff_reason", "barrier",
        "basis", "beat_id", "beside", "by", "check", "command", "created_by", "cron_expression", "cure",
        "cursor", "cursor_after", "cursor_before", "declared", "description", "does", "enqueued_by",
        "estimated", "example", "facts", "fingerprint", "foreign", "frame", "from_status", "headline",
        "help", "holder", "hostname", "id", "in_force", "in_words", "judged", "keys", "kind", "label",
        "labels", "last_task_id", "left_out_why", "level", "lock_key", "login", "may", "meaning", "measure",
        "misfire", "move", "name", "next", "note", "notes", "of", "outcome", "overlap", "owner", "page",
        "permissions", "planned_as", "problem", "quarantined", "queue", "queues", "rate_limit", "reason",
        "redis", "reported_by", "reviewed_by", "role", "roles", "room", "rules", "runbook", "runs", "says",
        "schedule", "scopes", "seen_by", "sender", "sentence", "severity", "shared", "sql", "state",
        "status", "stopped", "subject", "tables", "target", "task", "task_id", "text", "timezone", "title",
        "to_status", "trouble", "type", "unfit", "unique_key", "unit", "unread", "version", "via",
        "waits_for", "why", "why_nothing", "worker", "worker_id",
    }
)  # fmt: skip

#: The fields among them whose value is a mapping with data as its keys: its texts are shown, whatever the key.
OPEN: Final = frozenset({"cursor", "cursor_after", "cursor_before", "declared", "facts", "labels"})

#: The fields with sentences of the engine, which may quote errors. In all others « and » are a person's own.
SENTENCES: Final = frozenset(
    {"cure", "headline", "next", "quarantined", "reason", "says", "sentence", "trouble", "why"}
)


def veiled(shown: Any, name: str | None = None) -> Any:
    """Mask rows, dataclasses and lists of them. `name`: the field whose value this is, if any."""
    if isinstance(shown, str):
        return _text(shown, name)
    if isinstance(shown, Mapping):
        seen = {key: _field(str(key), value, name) for key, value in shown.items()}
        return seen | {field: error(seen[field]) for field in _errors(shown)} | _condition(shown)
    if is_dataclass(shown) and not isinstance(shown, type):
        row: Any = shown
        values = {one.name: getattr(row, one.name) for one in fields(row) if one.init}
        seen = {field: _field(field, value) for field, value in values.items()}
        return replace(row, **seen | {field: error(seen[field]) for field in _errors(values)})
    if isinstance(shown, tuple) and hasattr(shown, "_make"):
        row = shown
        return row._make(_field(*field) for field in zip(row.__match_args__, shown, strict=True))
    if isinstance(shown, list | tuple | set | frozenset):
        return [veiled(one, None if isinstance(one, Mapping) else name) for one in shown]
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


def _text(text: str, name: str | None) -> str:
    if not (name is None or name in SHOWN or not text or _INSTANT.fullmatch(text)):
        return HIDDEN
    if name is not None and name not in SENTENCES:
        return text
    if text.startswith(CANNOT_RUN) and not is_marked(text):
        return CANNOT_RUN + str(error(text.removeprefix(CANNOT_RUN)))
    return with_quotes(text, error)


def _field(name: str, value: Any, within: str | None = None) -> Any:
    """Mask a field. `within`: the field that holds its mapping; in some (`OPEN`) the names are data, such as roles."""
    if name in CALLS or name.startswith(ARGUMENT):
        return _call(value)
    if name in ERROR_TEXTS:
        return error(value)
    return veiled(value, within if name not in SHOWN and within in OPEN else name)


def _call(value: Any) -> Any:
    """Hide the values of arguments; their names are shown, as they are not private."""
    if isinstance(value, Mapping):
        return dict.fromkeys(value, HIDDEN)
    if isinstance(value, list | tuple):
        return [HIDDEN] * len(value)
    return None if value is None else HIDDEN


def _errors(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields that are errors in such a row, and sentences in others."""
    if "why" in row and row.get("from_status") == RUNNING:  # a run's error rather than the reason an operator gave
        yield "why"
    if "reason" in row and "sender" in row:  # a dead letter, whose reason may quote its arguments
        yield "reason"
    if _is_unmarked(row.get("quarantined")):
        yield "quarantined"
    if row.get("name") in QUOTING and _is_unmarked(row.get("says")):
        yield "says"


def _condition(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the target of an audit row for many tasks without values, which targets of an earlier release have."""
    if row.get("kind") != "tasks" or "=" not in str(row.get("target")):
        return {}
    return {"target": f"{str(row['target']).partition('=')[0]}={HIDDEN}"}


def _is_unmarked(sentence: Any) -> bool:
    return isinstance(sentence, str) and not is_marked(sentence)
