"""Find the queue and priority that Celery's `task_routes` gives to a role that names none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from celery.app.amqp import Queues
from celery.app.routes import Router, prepare
from celery.app.task import Task
from kombu.transport.virtual.exchange import TopicExchange

from celeriac.errors import ConfigurationError
from celeriac.roles.rules import RULES

#: kombu's reading of the keys by which topics are bound.
TOPICS = TopicExchange(None)


class Route(NamedTuple):
    queue: str = ""
    priority: Any = None


def routed(task: Task, *, by_call: bool = False) -> Route:
    """Return the task's route, empty if it has none. Raises ConfigurationError if the route depends on the call, unless
    its calls are routed one by one (`by_call`).
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
    """Return the queue of `task_queues` that a routing key leads to; nothing if it leads to none of them.

    Raises ConfigurationError if it leads to several. On Celery each of them gets the message if they have one exchange;
    if they have different ones, the exchange decides.
    """
    queues = Queues(conf.task_queues).values() if key else ()
    names = {str(queue.name) for queue in queues if any(_leads(bound, key, exchange) for bound in _bindings(queue))}
    if len(names) > 1:
        raise ConfigurationError(
            f"routing_key={key!r} leads to the queues {', '.join(sorted(names))} of task_queues, and a row is in one "
            "queue: name that (queue=…), or its exchange if they have different ones, or declare a task for each"
        )
    return next(iter(names), "")


def _bindings(queue: Any) -> Iterable[tuple[Any, str]]:
    yield queue.exchange, queue.routing_key or ""
    yield from ((bound.exchange, bound.routing_key or "") for bound in queue.bindings or ())


def _leads(bound: tuple[Any, str], key: str, exchange: Any) -> bool:
    its, its_key = bound
    if getattr(exchange, "name", exchange) not in (None, "", its and its.name):
        return False
    if its and its.type == "topic":
        return re.match(TOPICS.key_to_pattern(its_key), key) is not None
    return its_key == key


def refuse_broadcast(role: str, conf: Any, queues: Iterable[str]) -> None:
    """Raise ConfigurationError for a queue of which each worker has its own, as those of `kombu.common.Broadcast`."""
    named = {queue.alias or queue.name: queue for queue in Queues(conf.task_queues).values()}
    for name in queues:
        if name in named and getattr(named[name].exchange, "type", None) == "fanout":
            raise ConfigurationError(
                f"role {role!r}: on its queue {name!r} each worker would get its tasks (Broadcast), and a row runs "
                "once: make it a command of celery.worker.control (@control_command), called by app.control.broadcast"
            )


def _name(task: Task, queue: Any) -> str:
    """Return the name of a kombu Queue, or of a queue given as text."""
    name = getattr(queue, "name", queue) or ""
    if not RULES["queue"].fits(name):
        raise ConfigurationError(f"task_routes: queue={name!r} for {task.name!r}: give {RULES['queue'].right}")
    return str(name)
