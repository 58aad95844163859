"""The log's lines about tasks, in the store workers' words and with the rows' ids."""

from __future__ import annotations

import logging
from typing import Any

from celeriac.roles.role import Role
from celeriac.run.run import Run
from celeriac.run.shared import worker_id
from celeriac.settle.write import LOST
from celeriac.store.started import Started, masked
from celeriac.store.states import COMPLETED

logger = logging.getLogger(__name__)


def wanted() -> bool:
    """Whether anybody reads them; asked once a ticket."""
    return logger.isEnabledFor(logging.INFO)


def claimed(task: Started, role: Role) -> None:
    """Who has it now."""
    whose = "".join(f" for {what} {value}" for what, value in _of(task, role).items())
    _say(task, f"[TaskWorker] Claimed task {task.id} ({task.role}){whose}", _of(task, role))


def settled(run: Run, seconds: float | None) -> None:
    """What became of it, once that is committed. What Celery itself logs of an error is not said again."""
    if run.became == COMPLETED:
        took = {} if seconds is None else {"seconds": round(seconds, 6)}
        _say(run.task, f"[TaskWorker] Task {run.task.id} completed successfully", took)
    elif run.became is not None and run.became != LOST and run.outcome is not None:
        what = "is tried again" if run.became == "pending" else run.became
        _say(run.task, f"[TaskWorker] Task {run.task.id} {what}: {run.outcome.error}", {"status": run.became})


def _say(task: Started, line: str, more: dict[str, Any]) -> None:
    known = {"task": task.id, "task_id": task.task_id, "role": task.role, "worker": worker_id()}
    logger.info("%s", line, extra={"data": known | more})


def _of(task: Started, role: Role) -> dict[str, Any]:
    """What it is about: the argument that gives its lock key, unique key or account, without its `_id`.

    Nothing where the call masks its arguments.
    """
    if masked(task.headers):
        return {}
    for key in (role.lock_by, role.unique_by, role.fair_by):
        if isinstance(key, str) and key in task.kwargs:
            return {key.removesuffix("_id"): task.kwargs[key]}
    return {}
