"""Find requests for a serializer other than JSON: a row may not be able to hold its values."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from celeriac.seam import sources
from celeriac.seam.configuration import SERIALIZERS, by_user, is_json
from celeriac.store.role_names import is_built_in

#: Advice: how to store values of types that JSON lacks.
TO_DO = (
    "arguments and results are JSON; leave the serializer out, and give the types that JSON lacks to "
    "kombu.utils.json.register_type, once and in every process"
)


def others(app: Any, *, calls: bool = False) -> list[str]:
    """Return a line that names the places where another is requested; empty without any.

    `calls`: look at the calls in modules that declare tasks, too.
    """
    said = [*_settings(app), *_tasks(app.tasks), *(_calls(app.tasks) if calls else ())]
    return [f"{sources.named(list(dict.fromkeys(said)))}: {TO_DO}"] if said else []


def _settings(app: Any) -> Iterator[str]:
    theirs = by_user(app.conf)
    for name in SERIALIZERS:
        if (value := theirs.get(name)) is not None and not is_json(value):
            yield f"{name}={value!r:.200}"
    yield from (_of(value, place) for place, value in sources.in_settings(app, "serializer") if not is_json(value))


def _tasks(tasks: Mapping[str, Any]) -> Iterator[str]:
    for name, task in sorted(tasks.items()):
        if not is_built_in(name) and not is_json(task.serializer):
            yield _of(task.serializer, name)


def _calls(tasks: Mapping[str, Any]) -> Iterator[str]:
    for place, value in sources.in_calls(tasks, "serializer"):
        if isinstance(value, ast.Constant) and not is_json(value.value):
            yield _of(value.value, place)


def _of(serializer: Any, place: str) -> str:
    return f"serializer={serializer!r} of {place}"
