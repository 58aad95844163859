"""Celery's `autoretry_for`, executed in SQL."""

from __future__ import annotations

from functools import wraps
from typing import Any

from celery.exceptions import Ignore, Retry

from celeriac.errors import Permanent
from celeriac.roles.attributes import said_by
from celeriac.run import coroutines
from celeriac.run.children import contained
from celeriac.seam import hooks
from celeriac.seam.task import Task


def retry_in_sql(task: Task[..., Any]) -> None:
    """Turn errors that the role retries into `retry()` with its backoff; the settle writes `scheduled_for`."""
    task.run = task.__dict__.pop("_orig_run", task.run)  # Celery's wrapper, by the class's options
    coroutines.adapt(task)
    hooks.adapt(task)
    run = task.run
    task.run = contained(_retrying(task, run) if task.role.retry_for else run)


def _retrying(task: Task[..., Any], run: Any) -> Any:
    role = task.role
    declared = (task.role_options or {}).get("retry_kwargs", {})
    options = dict(said_by(type(task)).get("retry_kwargs", {})) | dict(declared)
    options.pop("max_retries", None)  # the row has this bound

    @wraps(run)
    def attempt(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except (Ignore, Retry, Permanent, *role.dont_retry_for):
            raise
        except role.retry_for as error:
            wait = {"countdown": role.backoff.seconds(task.request.retries)} if role.backoff else {}
            raise task.retry(exc=error, **(wait | options)) from error

    return attempt
