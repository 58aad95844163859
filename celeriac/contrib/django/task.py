"""Celery's task for Django, with calls that are rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from celery import signals
from celery.contrib.django.task import DjangoTask as CelerysDjangoTask
from django.db import close_old_connections, transaction

from celeriac.run.coroutines import in_greenlets
from celeriac.seam.app import CallAfterCommit
from celeriac.seam.task import Task
from celeriac.store.ids import fresh_id

#: True in a worker's process and in its children.
_in_worker = False


@signals.worker_init.connect
def _note_worker(**_: Any) -> None:
    global _in_worker
    _in_worker = True


def _closing(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Wrap a coroutine so that in a worker Django's old or broken connections are closed at its end (CONN_MAX_AGE).

    Not under gevent: there asgiref's thread is a greenlet, and an event loop in another thread would wait for ever.
    """

    @wraps(handler)
    async def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return await handler(*args, **kwargs)
        finally:
            if _in_worker and not in_greenlets():
                await sync_to_async(close_old_connections)()

    return run


class DjangoTask(CelerysDjangoTask, Task[..., Any]):
    """A task of a Django project, made by `@app.task` and `@shared_task`."""

    abstract = True

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap coroutines with `_closing`: their ORM runs in a thread whose connections Celery does not close."""
        super().__init_subclass__(**options)
        run = cls.__dict__.get("run")
        handler = run.__func__ if isinstance(run, staticmethod) else run
        if iscoroutinefunction(handler):
            closing = _closing(handler)
            cls.run = staticmethod(closing) if isinstance(run, staticmethod) else closing

    def delay_on_commit(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue after the commit, as `apply_async_on_commit` does."""
        return self.apply_async_on_commit(args, kwargs)

    def apply_async_on_commit(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Enqueue after the commit; after a rollback, not at all. The returned result has the task's id already."""
        task_id = options.pop("task_id", None) or fresh_id()
        transaction.on_commit(
            CallAfterCommit(partial(self.apply_async, args, kwargs, task_id=task_id, **options), [task_id])
        )
        return self.AsyncResult(task_id)
