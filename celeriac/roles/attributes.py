"""Read a role's options from attributes of a task's class: class tasks and base classes have no decorator."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

from celery.app.task import Task as CeleryTask

from celeriac.roles.options import KEYS, OPTIONS, RETRY_OPTIONS, misspelt_attribute

_CELERYS = frozenset(dir(CeleryTask))


def said_by(task_class: type) -> dict[str, Any]:
    """Return the options that a class and its bases give, the nearest first.
    Raises ConfigurationError for a misspelt one.

    Methods and properties are never options, whatever their names, except that a key may be a function.
    """
    options: dict[str, Any] = {}
    for name, value in _attributes(task_class):
        if name not in OPTIONS | RETRY_OPTIONS:
            misspelt_attribute(name, task_class.__name__)
        elif name in KEYS or not hasattr(value, "__get__"):
            options.setdefault(name, value.__func__ if isinstance(value, staticmethod) else value)
    # Celery sets `priority = None` on each class that it binds to an app.
    return {name: value for name, value in options.items() if (name, value) != ("priority", None)}


def checks_arguments(task: CeleryTask) -> bool:
    """Return whether calls have to fit the handler: its class, a base or its app sets that (Celery's `typing`)."""
    said = (vars(each)["typing"] for each in type(task).__mro__ if not _is_an_engines(each) and "typing" in vars(each))
    return bool(next(said, task.app.strict_typing))


def _is_an_engines(task_class: type) -> bool:
    """Return whether the class is Celery's or ours."""
    return issubclass(CeleryTask, task_class) or str(task_class.__module__).startswith("celeriac.")


def _attributes(task_class: type) -> Iterator[tuple[str, Any]]:
    """Yield the user's attributes: not Celery's, the engine's, or those with a leading underscore."""
    for each in task_class.__mro__:
        if _is_an_engines(each):
            continue
        for name, value in vars(each).items():
            if not name.startswith("_") and (name in OPTIONS | RETRY_OPTIONS or not _is_celerys(name, value)):
                yield name, value


def _is_celerys(name: str, value: Any) -> bool:
    return name in _CELERYS or isinstance(value, FunctionType | property | classmethod | staticmethod)
