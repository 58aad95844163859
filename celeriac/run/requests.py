"""Build Celery's `self.request` for a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celeriac.canvas.parts import stored_body
from celeriac.roles.priorities import Priorities
from celeriac.roles.role import Role
from celeriac.run import redaction
from celeriac.run.app import TaskApp
from celeriac.run.run import Run
from celeriac.run.shared import node, worker_id
from celeriac.store.encoding import revived

#: The fields of a row's headers that its request has.
SAID = ("root_id", "parent_id", "ignore_result", "shadow", "argsrepr", "kwargsrepr", "eta")


class Requests:
    """Builds the requests of one ticket's tasks, whose role changes with the limits that operators set."""

    def __init__(self, app: TaskApp) -> None:
        self._app = app
        self._role: Role | None = None
        self._common: dict[str, Any] = {}

    def of(self, run: Run) -> dict[str, Any]:
        """Return the run's request; see `request_of`."""
        if run.role is not self._role:
            self._role, self._common = run.role, _common(self._app.conf.enable_utc, run.role)
        return _request_of(self._app.roles.priorities, run, self._common, revived)


def request_of(app: TaskApp, run: Run, read: Callable[[Any], Any] = revived) -> dict[str, Any]:
    """Return a request with what Celery's own say about a task.
    Raises what `read` raises about its workflow's links.
    """
    return _request_of(app.roles.priorities, run, _common(app.conf.enable_utc, run.role), read)


def _common(utc: bool, role: Role) -> dict[str, Any]:
    """Return a request with all that a role's tasks have in common. To copy it costs a fourth of making one."""
    return {
        "id": None, "task": role.name, "retries": 0, "root_id": None, "parent_id": None,
        "hostname": node() or worker_id(), "is_eager": False, "ignore_result": None,  # the task's own setting applies
        "correlation_id": None, "timelimit": None, "time_limit": role.hard_timeout, "soft_time_limit": None,
        "shadow": None, "argsrepr": None, "kwargsrepr": None, "eta": None, "delivery_info": None,
        "utc": utc, "properties": None, "origin": None, "reply_to": None,
    }  # fmt: skip


def _request_of(priorities: Priorities, run: Run, common: dict[str, Any], read: Callable[[Any], Any]) -> dict[str, Any]:
    task, said, role = run.task, run.task.headers, run.role
    hard, soft = (role.hard_timeout, run.timeout) if said is None else run.timelimit
    request = common.copy()
    request["id"] = request["root_id"] = request["correlation_id"] = task.task_id
    request["retries"] = task.retry_count
    request["timelimit"], request["time_limit"], request["soft_time_limit"] = [hard, soft], hard, soft
    request["origin"] = task.enqueued_by
    request["delivery_info"] = delivered = {
        "exchange": "", "routing_key": role.queue, "priority": priorities.turned(task.priority),
        "redelivered": task.losses > 0,
    }  # fmt: skip
    request["properties"] = {
        "correlation_id": task.task_id, "reply_to": None, "delivery_mode": 2, "priority": delivered["priority"],
        "delivery_info": delivered,
    }  # fmt: skip
    if run.secret is not None:
        request |= redaction.reprs(run)
    if said is None:
        return request
    canvas = read(run.canvas)
    if "chord" in canvas:
        canvas["chord"] = stored_body(**canvas["chord"])
    # A call's `headers["headers"]`, where tracers put what travels, is what Celery's requests call `headers`.
    own = read(said["headers"]) if "headers" in said else {}
    headers = {"headers": own, **own} if own else {}
    return {**headers, **request, **{k: said[k] for k in SAID if k in said}, **canvas}
