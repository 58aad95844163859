"""Which queue and priority Celery's `task_routes` gives to a role that names none."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from celery.app.amqp import Queues
from celery.app.routes import Router, prepare
from celery.app.task import Task
from kombu.transport.virtual.exchange import TopicExchange

from celeriac.errors import ConfigurationError
from celeriac.roles.rules import RULES

#: How kombu reads the keys that topics are bound by.
TOPICS = TopicExchange(None)


class Route(NamedTuple):
    queue: str = ""
    priority: Any = None


def routed(task: Task, *, by_call: bool = False) -> Route:
    """What its route says, if it has one. Raises ConfigurationError if that cannot be told without a call, unless its
    calls are routed one by one (`by_call`).
    """
    routes = task.app.conf.task_routes
    if not routes:
        return Route()
    try:
        route = Router(routes=prepare(routes)).lookup_route(task.name, (), {}, {}, task)
    except Exception as error:
        if by_call:
            return Route()
        raise ConfigurationError(
            f"role {task.name!r}: task_routes: {error!r}: a router is asked once for a role, which has one queue: let "
            "it answer by the task's name alone, or give `queue`, or all its `queues`, where the task is declared"
        ) from error
    said = {"queue": route} if isinstance(route, str) else route or {}
    queue = said.get("queue") or queue_of_key(task.app.conf, said.get("routing_key"), said.get("exchange"))
    return Route(_name(task, queue), said.get("priority"))


def queue_of_key(conf: Any, key: Any, exchange: Any = None) -> str:
    """The queue of `task_queues` that a routing key leads to; nothing if it leads to none of them."""
    named = getattr(exchange, "name", exchange)
    for queue in Queues(conf.task_queues).values() if key else ():
        bound = queue.exchange
        pattern = TOPICS.key_to_pattern(queue.routing_key or "") if bound and bound.type == "topic" else None
        is_bound = queue.routing_key == key if pattern is None else re.match(pattern, key)
        if is_bound and named in (None, "", bound and bound.name):
            return str(queue.name)
    return ""


def _name(task: Task, queue: Any) -> str:
    """Return the name of a kombu Queue, or of a queue given as text."""
    name = getattr(queue, "name", queue) or ""
    if not RULES["queue"].fits(name):
        raise ConfigurationError(f"task_routes: queue={name!r} for {task.name!r}: give {RULES['queue'].right}")
    return str(name)
