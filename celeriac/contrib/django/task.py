"""Celery's task for Django, whose calls are rows."""

from __future__ import annotations

from functools import partial
from typing import Any

from celery.contrib.django.task import DjangoTask as CelerysDjangoTask
from django.db import transaction

from celeriac.seam.task import Task
from celeriac.store.ids import fresh_id


class DjangoTask(CelerysDjangoTask, Task[..., Any]):
    """What `@app.task` and `@shared_task` make in a Django project."""

    abstract = True

    def delay_on_commit(self, *args: Any, **kwargs: Any) -> Any:
        """As `apply_async_on_commit`."""
        return self.apply_async_on_commit(args, kwargs)

    def apply_async_on_commit(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Enqueues after the commit, not at all after a rollback. The result it returns has the task's id already."""
        task_id = options.pop("task_id", None) or fresh_id()
        transaction.on_commit(partial(self.apply_async, args, kwargs, task_id=task_id, **options))
        return self.AsyncResult(task_id)
