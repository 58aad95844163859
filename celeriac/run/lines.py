"""The log's lines about tasks, in the store workers' words and with the rows' ids."""

from __future__ import annotations

import logging
import time
from typing import Any

from celeriac import logged
from celeriac.roles.role import Role
from celeriac.run.outlets import LINES
from celeriac.run.run import Run
from celeriac.run.shared import worker_id
from celeriac.run.sparing import Sparing
from celeriac.settle.outcome import LOST, Started, masked
from celeriac.store.messages import pattern_of
from celeriac.store.states import COMPLETED

logger = logging.getLogger(__name__)

#: Number of characters of a ticket's token that a line shows: the whole token would allow its reader to end the tasks.
TOKEN_SHOWN = 8

_sparing = Sparing()


def claimed(task: Started, role: Role, *, together: bool = False) -> None:
    """Log which worker has the task now; `together`: with other lines, by `LINES`."""
    about = _of(task, role)
    whose = "".join(f" for {what} {value}" for what, value in about.items())
    if task.account and not masked(task.headers) and task.account not in map(str, about.values()):
        whose += f" of account {task.account}"
    line = f"[TaskWorker] Claimed task {task.id} ({task.role}){whose}"
    if together:
        LINES.add(line)
    else:
        _say("task.claimed", task, line, about)


def settled(run: Run, seconds: float | None, *, together: bool = False) -> None:
    """Log what became of the task, once that is committed. An error that Celery itself logs is not repeated. If many
    tasks of a role end with similar errors, a few are logged each minute, with the number of omitted ones.
    """
    if run.became == COMPLETED and together:
        LINES.add(f"[TaskWorker] Task {run.task.id} completed successfully")
    elif run.became == COMPLETED:
        took = {} if seconds is None else {"seconds": round(seconds, 6)}
        _say("task.completed", run.task, f"[TaskWorker] Task {run.task.id} completed successfully", took)
    elif run.became is not None and run.became != LOST and run.outcome is not None:
        event, what = ("retried", "is tried again") if run.became == "pending" else (run.became, run.became)
        alike = (event, run.task.role, pattern_of(str(run.outcome.error)))
        if (left_out := _sparing.admit(alike, time.monotonic())) is None:
            return
        more = f" ({left_out:,} more like it before)" if left_out else ""
        line = f"[TaskWorker] Task {run.task.id} {what}: {run.outcome.error}{more}"
        _say(f"task.{event}", run.task, line, {"status": run.became, "left_out": left_out})


def refused(task: Started) -> None:
    """Log that a run ended after its task had been taken from it."""
    message = f"[TaskWorker] Task {task.id} was no longer this run's: what it came to is refused"
    logger.warning("%s", message, extra=logged.of("settle.refused", **known(task)))


def known(task: Started) -> dict[str, Any]:
    """Return the fields of every line about a run. `attempt` and `round` count from 1;
    the ticket's token is shortened.
    """
    who = {
        "task": task.id,
        "task_id": task.task_id,
        "role": task.role,
        "worker": worker_id(),
        "ticket": task.token[:TOKEN_SHOWN],
    }
    attempt = {"attempt": task.retry_count + 1, "round": task.tries + 1}
    whose = {"account": task.account, "lock_key": task.lock_key}
    said = {name: value for name, value in whose.items() if value and not masked(task.headers)}
    return {**who, **attempt, **said, **_traced(task)}


def _say(event: str, task: Started, line: str, more: dict[str, Any]) -> None:
    logger.info("%s", line, extra=logged.of(event, **{**known(task), **more}))


def _traced(task: Started) -> dict[str, str]:
    """Return the ids of the caller's trace, if the call's headers have one (W3C Trace Context), to join their lines."""
    return ids_of(((task.headers or {}).get("headers") or {}).get("traceparent"))


def ids_of(said: object) -> dict[str, str]:
    """Return the trace and span id of a `traceparent`, if it is one."""
    parts = said.split("-") if isinstance(said, str) else []
    return {"trace_id": parts[1], "span_id": parts[2]} if len(parts) == 4 else {}


def _of(task: Started, role: Role) -> dict[str, Any]:
    """Return what the task is about: the argument that gives its lock key, unique key or account, without its `_id`.

    Nothing if the call masks its arguments.
    """
    if masked(task.headers):
        return {}
    for key in (role.lock_by, role.unique_by, role.fair_by):
        if isinstance(key, str) and key in task.kwargs:
            return {key.removesuffix("_id"): task.kwargs[key]}
    return {}
