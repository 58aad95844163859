"""Check whether Celery's own functions are in place where a shortcut of ours would skip them.

Tracers, agents and applications replace or wrap them; a replacement is called, as on Celery. They are compared by
identity, at each call. A function that was replaced before this module was imported counts as replaced.
"""

from __future__ import annotations

import sys
from operator import attrgetter
from types import FunctionType
from typing import Any

from celery.app import trace
from celery.app.amqp import AMQP
from celery.app.base import Celery
from celery.app.task import Task
from celery.beat import Scheduler
from kombu.messaging import Producer


def _celerys(owner: type, name: str) -> object:
    """Return the function as its package defines it, or a new object, identical to nothing, if it was replaced."""
    function = vars(owner)[name]
    defined = sys.modules[owner.__module__].__file__
    return function if type(function) is FunctionType and function.__code__.co_filename == defined else object()


_DELAY, _APPLY_ASYNC = _celerys(Task, "delay"), _celerys(Task, "apply_async")
_SEND_TASK, _AS_TASK = _celerys(Celery, "send_task"), _celerys(AMQP, "as_task_v2")
_PUBLISH, _APPLY_ENTRY = _celerys(Producer, "publish"), _celerys(Scheduler, "apply_entry")
_CALL = _celerys(Task, "__call__")

# These are views of the classes' dicts, not copies.
_task, _app, _amqp, _producer, _scheduler = map(vars, (Task, Celery, AMQP, Producer, Scheduler))


def delay_is_celerys() -> bool:
    return _task["delay"] is _DELAY


def publish_is_celerys() -> bool:
    return _producer["publish"] is _PUBLISH


def apply_entry_is_celerys() -> bool:
    return _scheduler["apply_entry"] is _APPLY_ENTRY


def sending_is_celerys() -> bool:
    """Return whether all that a call goes through, from `apply_async` to the message, is Celery's."""
    return (
        _task["apply_async"] is _APPLY_ASYNC
        and _app["send_task"] is _SEND_TASK
        and _amqp["as_task_v2"] is _AS_TASK
        and _producer["publish"] is _PUBLISH
    )


def call_is_celerys() -> bool:
    """Return whether `Task.__call__` is Celery's; a Celery worker wraps it in a function of its own."""
    call: Any = _task["__call__"]
    if call is _CALL:
        return True
    is_protection = type(call) is FunctionType and call.__code__.co_filename == trace.__file__
    return is_protection and _CALL in map(attrgetter("cell_contents"), call.__closure__ or ())
