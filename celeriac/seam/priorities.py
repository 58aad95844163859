"""Find priorities of an application that has not set which way priorities go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from celeriac.roles.declare import Roles
from celeriac.roles.priorities import TO_SAY
from celeriac.roles.routes import routed
from celeriac.seam import sources

#: Methods whose calls take `priority=`.
_CALLS = sources.TAKING | {"s", "si", "bulk", "abulk"}


def unsaid(app: Any, *, calls: bool = False) -> list[str]:
    """Return a note that names the places; with `calls`, also calls in the modules that declare tasks.

    Empty if it is set.
    """
    roles: Roles = app.roles
    if not roles.priorities.is_unsaid:
        return []
    own = {type(task).__module__ for task in app.tasks.values() if getattr(task, "_has_role", False)}
    others = {name: task for name, task in app.tasks.items() if type(task).__module__ not in own}
    in_calls = [place for place, _ in sources.in_calls(others, "priority", _CALLS)] if calls else ()
    places = list(dict.fromkeys([*_settings(app), *_declared(roles, app.tasks), *in_calls]))
    return [f"priority: the highest goes first, in {sources.named(places)}: {TO_SAY}"] if places else []


def _settings(app: Any) -> Iterator[str]:
    if app.conf.task_default_priority:
        yield "task_default_priority"
    yield from (place for place, _ in sources.in_settings(app, "priority"))


def _declared(roles: Roles, tasks: Mapping[str, Any]) -> Iterator[str]:
    """Yield priorities given without `role=`, and by routes. A task with `role=` was written for this engine."""
    for declared in roles.all():
        task = tasks[declared.role.name]
        is_said = task._has_role or getattr(task, "priority_is_said", False)
        if "priority" in (getattr(task, "role_options", None) or {}) and not is_said:
            yield f"role {declared.role.name!r}"
        if routed(task).priority is not None:
            yield f"task_routes (of {declared.role.name!r})"
