"""A schedule's arguments: kept as a task's row keeps its own, and given to each of its tasks as a call would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celeriac.enqueue.intake import arguments_of, new_task
from celeriac.enqueue.rows import NewTask
from celeriac.errors import ConfigurationError
from celeriac.schedules.decide import Entry, Job, call_of
from celeriac.store.encoding import MOST_BYTES, Unfit, encoded, revived

if TYPE_CHECKING:
    from celeriac.app import Celeriac


def kept(given: Any, of: str = "") -> Any:
    """As JSON, with dates and the like in kombu's notation. Raises ConfigurationError; `of` begins its message."""
    try:
        return encoded(given, MOST_BYTES)
    except Unfit as error:
        raise ConfigurationError(f"{of}the arguments cannot be kept: {error}") from None


def task_of(app: Celeriac, given: Entry | Job, task_id: str, **more: Any) -> NewTask:
    """What an instant enqueues. Raises EnqueueRefused."""
    role, signature = app.role_named(given.target)
    limit = app.settings.max_argument_bytes
    args, fields = call_of(given.options)
    said = revived(arguments_of(role.name, {"args": list(args), "kwargs": dict(given.kwargs)}, limit))
    return new_task(
        role, signature, task_id, said["args"], said["kwargs"], limit=limit, may_be_instants=True,
        priority=given.priority, **fields, **more,
    )  # fmt: skip
