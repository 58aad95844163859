"""The tasks of an app by name.

A shared task with `role=` is also found by the name that Celery would give it, and a renamed task by its former names.
"""

from __future__ import annotations

from typing import Any

from celery.app.registry import TaskRegistry
from celery.utils.imports import symbol_by_name

from celeriac.errors import ConfigurationError
from celeriac.roles.role import Role


class Registry(TaskRegistry):
    """Tasks by name. Celery's `@shared_task(role="sync")` looks its task up by the handler's name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.roles: dict[str, str] = {}
        self.former: dict[str, str] = {}

    def __missing__(self, name: str) -> Any:
        role = self.former.get(name) or self.roles.get(name)
        return self[role] if role in self else super().__missing__(name)

    def rename(self, role: Role) -> None:
        """Register the role's aliases. Raises ConfigurationError if a name would stand for two roles."""
        if (successor := self.former.get(role.name)) is not None:
            raise ConfigurationError(
                f"role {role.name!r}: {successor!r} has this name among its aliases: leave it out there, or here"
            )
        for alias in role.aliases:
            other = alias if alias in self else self.former.get(alias, role.name)
            if other != role.name or alias == role.name:
                raise ConfigurationError(
                    f"role {role.name!r}: aliases={role.aliases!r}: {alias!r} is "
                    f"{'a name of role ' + repr(other) if other != role.name else 'its own name'}: leave it out"
                )
        self.former |= dict.fromkeys(role.aliases, role.name)


def with_roles(base: Any) -> Any:
    """Return a subclass of a user's own registry class, which also finds tasks by their roles."""
    base = symbol_by_name(base)
    return base if issubclass(base, Registry) else type(base.__name__, (base, Registry), {})
