"""The tasks of an app by name; a shared one with `role=` also by the name Celery would have given it."""

from __future__ import annotations

from typing import Any

from celery.app.registry import TaskRegistry


class Registry(TaskRegistry):
    """`@shared_task(role="sync")` asks for its task by the handler's name: the decorator is Celery's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.roles: dict[str, str] = {}

    def __missing__(self, name: str) -> Any:
        role = self.roles.get(name)
        return self[role] if role in self else super().__missing__(name)
