"""Check whether Celery's own functions are in place where a shortcut of ours would skip them.

Tracers, agents and applications replace or wrap them; a replacement is called, as on Celery. They are compared by
identity, at each call. A function that was replaced before this module was imported counts as replaced.
"""

from __future__ import annotations

import sys
from types import FunctionType

from celery.app.amqp import AMQP
from celery.app.base import Celery
from celery.app.task import Task
from celery.beat import Scheduler
from kombu.messaging import Producer


def celerys(owner: type, name: str) -> object:
    """Return the function as its package defines it; if it was replaced, a new object, which is identical to
    nothing.
    """
    function = vars(owner)[name]
    defined = sys.modules[owner.__module__].__file__
    return function if type(function) is FunctionType and function.__code__.co_filename == defined else object()


_DELAY, _APPLY_ASYNC = celerys(Task, "delay"), celerys(Task, "apply_async")
_SEND_TASK, _AS_TASK = celerys(Celery, "send_task"), celerys(AMQP, "as_task_v2")
_PUBLISH, _APPLY_ENTRY = celerys(Producer, "publish"), celerys(Scheduler, "apply_entry")

# These are views of the classes' dicts, not copies.
_task, _app, _amqp, _producer, _scheduler = map(vars, (Task, Celery, AMQP, Producer, Scheduler))


def delay_is_celerys() -> bool:
    return _task["delay"] is _DELAY


def publish_is_celerys() -> bool:
    return _producer["publish"] is _PUBLISH


def apply_entry_is_celerys() -> bool:
    return _scheduler["apply_entry"] is _APPLY_ENTRY


def sending_is_celerys() -> bool:
    """Return whether all functions from `apply_async` to the message are Celery's own."""
    return (
        _task["apply_async"] is _APPLY_ASYNC
        and _app["send_task"] is _SEND_TASK
        and _amqp["as_task_v2"] is _AS_TASK
        and _producer["publish"] is _PUBLISH
    )
