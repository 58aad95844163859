"""Find where an application gives an option to calls of its tasks: in its settings and its modules' source."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from celery.app.annotations import MapAnnotation

from celeriac.store.role_names import is_built_in

#: Methods that take options beside the task's arguments.
TAKING = frozenset({
    "apply_async", "aapply_async", "send_task", "signature", "subtask", "set", "clone", "using", "Signature",
})  # fmt: skip

#: Maximum number of places that a line names.
_NAMED = 8


def in_settings(app: Any, option: str) -> Iterator[tuple[str, Any]]:
    """Yield each annotation and entry of `beat_schedule` that gives the option, with its value."""
    for annotation in app.annotations:
        if isinstance(annotation, MapAnnotation):
            yield from (
                (f"task_annotations[{name!r}]", said[option]) for name, said in annotation.items() if option in said
            )
    for name, entry in (app.conf.beat_schedule or {}).items():
        options = (entry.get("options") if isinstance(entry, Mapping) else getattr(entry, "options", None)) or {}
        if options.get(option) is not None:
            yield f"beat_schedule[{name!r}]", options[option]


def in_calls(tasks: Mapping[str, Any], option: str, taking: frozenset[str] = TAKING) -> Iterator[tuple[str, ast.expr]]:
    """Yield the place of each call that gives the option, with its expression, in modules that declare tasks."""
    modules = {type(task).__module__ for name, task in tasks.items() if not is_built_in(name)}
    for name in sorted(modules):
        try:
            tree = ast.parse(inspect.getsource(sys.modules[name]))
        except (KeyError, OSError, TypeError, SyntaxError):
            continue
        calls = [call for call in ast.walk(tree) if isinstance(call, ast.Call) and _name(call) in taking]
        options = [(call.lineno, keyword.value) for call in calls for keyword in call.keywords if keyword.arg == option]
        yield from ((f"{name}:{line}", value) for line, value in sorted(options, key=lambda one: one[0]))


def _name(call: ast.Call) -> str | None:
    return getattr(call.func, "attr", getattr(call.func, "id", None))


def named(places: list[str]) -> str:
    """Return a text with the first places and the number of others."""
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return f"{', '.join(places[:_NAMED])}{more}"
