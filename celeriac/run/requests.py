"""Celery's requests: what `self.request` tells a handler of its task."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from celery.app.task import Context

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


class DirectRequest(Context):
    """The request of a direct call. Two of its fields are made when they are first read, because few handlers do."""

    # Beside its fields, among which a call's own headers are.
    __slots__ = ("celeriac_priorities", "celeriac_run")

    celeriac_priorities: Priorities
    celeriac_run: Run

    @cached_property
    def delivery_info(self) -> dict[str, Any]:
        return _delivered(self.celeriac_priorities, self.celeriac_run)["delivery_info"]

    @cached_property
    def properties(self) -> dict[str, Any]:
        return _delivered(self.celeriac_priorities, self.celeriac_run)["properties"] | {
            "delivery_info": self.delivery_info
        }

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is Celery's own, with all fields and nothing of the run."""
        return Context, (), self._whole()

    def __repr__(self) -> str:
        return f"<Context: {self._whole()!r}>"

    def _whole(self) -> dict[str, Any]:
        return _delivered(self.celeriac_priorities, self.celeriac_run) | self.__dict__


class Requests:
    """Builds the requests of one ticket's direct calls, whose role changes with the limits that operators set."""

    def __init__(self, app: TaskApp) -> None:
        self._app = app
        self._role: Role | None = None
        self._common: dict[str, Any] = {}

    def fill(self, context: DirectRequest, run: Run, args: Any, kwargs: Any) -> dict[str, Any]:
        """Make the context this run's request, and return its fields but for those that are made when they are read."""
        if run.role is not self._role:
            self._role, self._common = run.role, _common(self._app.conf.enable_utc, run.role)
        request = _request_of(run, self._common, revived)
        request["args"], request["kwargs"] = args, kwargs
        if run.task.headers is not None:
            request |= _delivered(self._app.roles.priorities, run)  # a call's own headers may not say them
        context.__dict__ = request  # type: ignore[misc]  # Celery's class has one
        context.celeriac_priorities, context.celeriac_run = self._app.roles.priorities, run
        return request


def request_of(app: TaskApp, run: Run, read: Callable[[Any], Any] = revived) -> dict[str, Any]:
    """Return a request with the fields that Celery's own have. Raises what `read` raises about its workflow's links."""
    request = _request_of(run, _common(app.conf.enable_utc, run.role), read)
    return request | _delivered(app.roles.priorities, run)


def _common(utc: bool, role: Role) -> dict[str, Any]:
    """Return a request with all that a role's tasks have in common. Copying it takes a quarter of the time of making
    one.
    """
    return {
        "id": None, "task": role.name, "retries": 0, "root_id": None, "parent_id": None,
        "hostname": node() or worker_id(), "is_eager": False, "ignore_result": None,  # the task's own setting applies
        "correlation_id": None, "timelimit": None, "time_limit": role.hard_timeout, "soft_time_limit": None,
        "shadow": None, "argsrepr": None, "kwargsrepr": None, "eta": None, "called_directly": False,
        "utc": utc, "origin": None, "reply_to": None,
    }  # fmt: skip


def _request_of(run: Run, common: dict[str, Any], read: Callable[[Any], Any]) -> dict[str, Any]:
    task, said, role = run.task, run.task.headers, run.role
    if said is None:
        hard, soft = role.hard_timeout, role.timeout if task.timeout is None else task.timeout
    else:
        hard, soft = run.timelimit
    request = common.copy()
    request["id"] = request["root_id"] = request["correlation_id"] = task.task_id
    request["retries"] = task.retry_count
    request["timelimit"], request["time_limit"], request["soft_time_limit"] = [hard, soft], hard, soft
    request["origin"] = task.enqueued_by
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
    return {**headers, **request, **{k: said[k] for k in SAID if k in said}, **redaction.reprs(run), **canvas}


def _delivered(priorities: Priorities, run: Run) -> dict[str, dict[str, Any]]:
    """Return what a request says of its message."""
    priority = priorities.turned(run.task.priority)
    delivery_info = {
        "exchange": "", "routing_key": run.role.queue, "priority": priority, "redelivered": run.task.losses > 0,
    }  # fmt: skip
    properties = {
        "correlation_id": run.task.task_id, "reply_to": None, "delivery_mode": 2, "priority": priority,
        "delivery_info": delivery_info,
    }  # fmt: skip
    return {"delivery_info": delivery_info, "properties": properties}
