"""The base class of the shop's tasks."""

from __future__ import annotations

import os

from celery import Task

from shop import journal


class Till:
    """Stands for what is dear to open: a connection, a client."""

    def __init__(self):
        self.pid = os.getpid()
        journal.write("till opened")


class ShopTask(Task):
    abstract = True
    _till = None

    @property
    def till(self):
        if self._till is None or self._till.pid != os.getpid():
            self._till = Till()
        return self._till

    def __call__(self, *args, **kwargs):
        journal.write("called", task=self.name, directly=bool(self.request.called_directly))
        return super().__call__(*args, **kwargs)

    def before_start(self, task_id, args, kwargs):
        journal.write("before_start", id=task_id)

    def on_success(self, retval, task_id, args, kwargs):
        journal.write("on_success", id=task_id, retval=retval)

    def on_retry(self, exc, task_id, args, kwargs, einfo):
        journal.write("on_retry", id=task_id, error=repr(exc))

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        journal.write("on_failure", id=task_id, error=repr(exc), args=args, traced="Traceback" in str(einfo))

    def after_return(self, status, retval, task_id, args, kwargs, einfo):
        journal.write("after_return", id=task_id, status=status)
