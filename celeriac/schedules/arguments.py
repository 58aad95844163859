"""A schedule's arguments: kept as a task's row keeps its own, and passed to each of its tasks as in a call."""

from __future__ import annotations

from typing import Any

from celeriac.enqueue.foreign import RoleNamed
from celeriac.enqueue.intake import arguments_of, new_task
from celeriac.enqueue.rows import NewTask
from celeriac.errors import ConfigurationError
from celeriac.schedules.decide import Entry, PlannedJob, call_of
from celeriac.store.encoding import MOST_BYTES, Unfit, encoded, revived


def kept(value: Any, of: str = "") -> Any:
    """Return JSON, with dates and the like as kombu writes them. Raises ConfigurationError, which begins with `of`."""
    try:
        return encoded(value, MOST_BYTES)
    except Unfit as error:
        raise ConfigurationError(f"{of}the arguments cannot be kept: {error}") from None


def task_of(role_named: RoleNamed, limit: float, schedule: Entry | PlannedJob, task_id: str, **more: Any) -> NewTask:
    """Build the task that an instant enqueues; `limit`: bytes of its arguments. Raises EnqueueRefused."""
    role, signature = role_named(schedule.target)
    args, fields = call_of(schedule.options)
    said = revived(arguments_of(role.name, {"args": list(args), "kwargs": dict(schedule.kwargs)}, limit))
    return new_task(
        role, signature, task_id, said["args"], said["kwargs"], limit=limit, may_be_instants=True,
        priority=schedule.priority, **fields, **more,
    )  # fmt: skip
