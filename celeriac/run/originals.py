"""Whether Celery's own functions still stand where a shorter way of ours would pass them by.

Tracers, agents and applications replace them or wrap them; whoever did so is called, as on Celery. They are compared by
identity, at each call. A function that was replaced before this module was imported counts as replaced.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

from celery.app import trace
from celery.app.amqp import AMQP
from celery.app.base import Celery
from celery.app.task import Task
from celery.beat import Scheduler
from kombu.messaging import Producer


def _celerys(owner: type, name: str) -> object:
    """The function as its package defines it; what nothing is identical to if it has been replaced."""
    function = vars(owner)[name]
    defined = sys.modules[owner.__module__].__file__
    return function if type(function) is FunctionType and function.__code__.co_filename == defined else object()


_DELAY, _APPLY_ASYNC = _celerys(Task, "delay"), _celerys(Task, "apply_async")
_SEND_TASK, _AS_TASK = _celerys(Celery, "send_task"), _celerys(AMQP, "as_task_v2")
_PUBLISH, _APPLY_ENTRY = _celerys(Producer, "publish"), _celerys(Scheduler, "apply_entry")
_CALL = _celerys(Task, "__call__")

# Views of the classes, not copies.
_task, _app, _amqp, _producer, _scheduler = map(vars, (Task, Celery, AMQP, Producer, Scheduler))


def delay_is_celerys() -> bool:
    return _task["delay"] is _DELAY


def publish_is_celerys() -> bool:
    return _producer["publish"] is _PUBLISH


def apply_entry_is_celerys() -> bool:
    return _scheduler["apply_entry"] is _APPLY_ENTRY


def sending_is_celerys() -> bool:
    """All that a call goes through between `apply_async` and the message."""
    return (
        _task["apply_async"] is _APPLY_ASYNC
        and _app["send_task"] is _SEND_TASK
        and _amqp["as_task_v2"] is _AS_TASK
        and _producer["publish"] is _PUBLISH
    )


def call_is_celerys() -> bool:
    """`Task.__call__`; a worker of Celery's puts a function of its own around it."""
    call: Any = _task["__call__"]
    if call is _CALL:
        return True
    is_protection = type(call) is FunctionType and call.__code__.co_filename == trace.__file__
    return is_protection and any(cell.cell_contents is _CALL for cell in call.__closure__ or ())
