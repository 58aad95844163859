"""Which queue and priority Celery's `task_routes` gives to a role that names none."""

from __future__ import annotations

from typing import Any, NamedTuple

from celery.app.routes import Router, prepare
from celery.app.task import Task

from celeriac.errors import ConfigurationError
from celeriac.roles.rules import RULES


class Route(NamedTuple):
    queue: str = ""
    priority: Any = None


def routed(task: Task) -> Route:
    """What its route says, if it has one. Raises ConfigurationError if that cannot be told without a call."""
    routes = task.app.conf.task_routes
    if not routes:
        return Route()
    try:
        route = Router(routes=prepare(routes)).lookup_route(task.name, (), {}, {}, task)
    except Exception as error:
        raise ConfigurationError(
            f"role {task.name!r}: task_routes: {error!r}: a router is asked once for a role, which has one queue: let "
            "it answer by the task's name alone, or give `queue` where the task is declared"
        ) from error
    said = {"queue": route} if isinstance(route, str) else route or {}
    return Route(_name(task, said.get("queue")), said.get("priority"))


def _name(task: Task, queue: Any) -> str:
    """Of a kombu Queue or of a text."""
    name = getattr(queue, "name", queue) or ""
    if not RULES["queue"].fits(name):
        raise ConfigurationError(f"task_routes: queue={name!r} for {task.name!r}: give {RULES['queue'].right}")
    return str(name)
