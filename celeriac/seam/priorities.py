"""Where an application gives priorities without having said which way they mean."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from celery.app.annotations import MapAnnotation

from celeriac.roles.declare import Roles
from celeriac.roles.priorities import TO_SAY
from celeriac.roles.routes import routed
from celeriac.store.built_in import is_built_in

#: What takes `priority=` for a call.
_CALLS = frozenset({
    "apply_async", "aapply_async", "send_task", "signature", "subtask", "s", "si", "set", "clone", "using", "bulk",
    "abulk", "Signature",
})  # fmt: skip

#: How many places a note names.
_NAMED = 8


def unsaid(app: Any, *, calls: bool = False) -> list[str]:
    """A note that names them, `calls` also those in the modules that declare tasks; none where it is said."""
    roles: Roles = app.roles
    if not roles.priorities.is_unsaid:
        return []
    places = list(dict.fromkeys([*_settings(app), *_declared(roles, app.tasks), *(_calls(app.tasks) if calls else ())]))
    if not places:
        return []
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return [f"priority: the highest goes first, in {', '.join(places[:_NAMED])}{more}: {TO_SAY}"]


def _settings(app: Any) -> Iterator[str]:
    if app.conf.task_default_priority:
        yield "task_default_priority"
    for annotation in app.annotations:
        if isinstance(annotation, MapAnnotation):
            yield from (f"task_annotations[{name!r}]" for name, said in annotation.items() if "priority" in said)
    for name, entry in (app.conf.beat_schedule or {}).items():
        options = (entry.get("options") if isinstance(entry, Mapping) else getattr(entry, "options", None)) or {}
        if options.get("priority") is not None:
            yield f"beat_schedule[{name!r}]"


def _declared(roles: Roles, tasks: Mapping[str, Any]) -> Iterator[str]:
    """A task that says `role=` was written for this engine."""
    for declared in roles.all():
        task = tasks[declared.role.name]
        is_said = task._has_role or getattr(task, "priority_is_said", False)
        if "priority" in (getattr(task, "role_options", None) or {}) and not is_said:
            yield f"role {declared.role.name!r}"
        if routed(task).priority is not None:
            yield f"task_routes (of {declared.role.name!r})"


def _calls(tasks: Mapping[str, Any]) -> Iterator[str]:
    own = {type(task).__module__ for task in tasks.values() if getattr(task, "_has_role", False)}
    modules = {type(task).__module__ for name, task in tasks.items() if not is_built_in(name)} - own
    for name in sorted(modules):
        try:
            tree = ast.parse(inspect.getsource(sys.modules[name]))
        except (KeyError, OSError, TypeError, SyntaxError):
            continue
        lines = sorted({call.lineno for call in ast.walk(tree) if isinstance(call, ast.Call) and _gives_priority(call)})
        yield from (f"{name}:{line}" for line in lines)


def _gives_priority(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", None))
    return name in _CALLS and any(keyword.arg == "priority" for keyword in call.keywords)
