"""Stand-ins for parts of Celery 5.7 that Celery 5.6 lacks; to be deleted when 5.6 is no longer supported.

The tracer of 5.6 publishes the callbacks and links after a task itself. Later tracers call `AMQP._retry_publish`, which
the engine replaces.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

from celery.app.amqp import AMQP
from celery.app.task import Context
from celery.canvas import group, maybe_signature

logger = logging.getLogger(__name__)

IS_OLDER = not hasattr(AMQP, "_retry_publish")

if IS_OLDER:
    for limit in ("time_limit", "soft_time_limit"):
        setattr(Context, limit, None)  # an attribute that the class lacks would count as a header of the caller's

#: The function within Celery 5.6's tracer that publishes callbacks and the next link of a chain.
PUBLISHES = "_dispatch_callbacks_and_chain"


class Tracer:
    """The attribute `__trace__` of a task: a tracer that publishes callbacks and links by `AMQP._retry_publish`."""

    def __get__(self, task: Any, owner: type) -> Any:
        return None if task is None else task.__dict__.get("__trace__")

    def __set__(self, task: Any, tracer: Any) -> None:
        cells = list(publishers(tracer))
        if not cells:
            logger.warning("%s: what follows it is published by Celery itself: %s is not found", task.name, PUBLISHES)
        for cell in cells:
            cell.cell_contents = publisher(task.app)
        task.__dict__["__trace__"] = tracer


def publishers(tracer: Any) -> Iterator[CellType]:
    """Yield the cells in which a tracer holds that function, also within wrappers, as Sentry's."""
    open_, seen = [tracer], dict[int, Any]()
    while open_:
        one = open_.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if isinstance(one, FunctionType):
            cells = dict(zip(one.__code__.co_freevars, one.__closure__ or (), strict=True))
            if PUBLISHES in cells:
                yield cells[PUBLISHES]
                return
            open_ += [content for cell in cells.values() for content in _contents(cell)]
            open_.append(one.__dict__.get("__wrapped__"))
        elif isinstance(one, partial):
            open_.append(one.func)
        elif isinstance(one, MethodType):
            open_.append(one.__func__)


def _contents(cell: CellType) -> Iterator[Any]:
    """Yield the cell's content, if its variable is set."""
    with suppress(ValueError):
        yield cell.cell_contents


def publisher(app: Any) -> Callable[..., None]:
    """Return the function as Celery 5.7 has it."""

    def publish(
        result: Any, callbacks: Any, chain: Any, parent_id: str | None, root_id: str | None, priority: int | None
    ) -> None:
        sent = {"parent_id": parent_id, "root_id": root_id, "priority": priority}
        links = [maybe_signature(one, app=app) for one in callbacks or ()]
        groups, tasks = ([one for one in links if isinstance(one, group) is is_group] for is_group in (True, False))
        for link in (*groups, *(tasks if len(tasks) < 2 else [group(tasks, app=app)])):
            app.amqp._retry_publish(link.apply_async, (result,), **sent)
        if chain:
            following = maybe_signature(chain[-1], app=app)
            app.amqp._retry_publish(following.apply_async, (result,), chain=chain[:-1], **sent)

    return publish
