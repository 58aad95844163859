"""The tasks of an app by name; a shared one with `role=` also by the name Celery would have given it."""

from __future__ import annotations

from typing import Any

from celery.app.registry import TaskRegistry
from celery.utils.imports import symbol_by_name


class Registry(TaskRegistry):
    """`@shared_task(role="sync")` asks for its task by the handler's name: the decorator is Celery's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.roles: dict[str, str] = {}

    def __missing__(self, name: str) -> Any:
        role = self.roles.get(name)
        return self[role] if role in self else super().__missing__(name)


def with_roles(base: Any) -> Any:
    """A user's own class of registries, which knows its tasks by their roles as well."""
    base = symbol_by_name(base)
    return base if issubclass(base, Registry) else type(base.__name__, (base, Registry), {})
