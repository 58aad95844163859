"""Do what Celery does in a worker's main process about a task stopped at its hard time limit: hooks and signal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import signals, states
from celery.exceptions import TimeLimitExceeded

from celeriac.settle.outcome import Outcome
from celeriac.store.encoding import revived
from celeriac.store.states import FAILED

logger = logging.getLogger(__name__)


def tell(tasks: Mapping[str, Any], outcome: Outcome, became: str | None) -> None:
    """Call the hooks and the signal, if the task has failed for good;
    in a thread of their own, since a hook may take long.
    """
    if became == FAILED:
        Thread(target=_call, args=(tasks[outcome.task.role], outcome), name="hooks", daemon=True).start()


def _call(task: Any, outcome: Outcome) -> None:
    started, error = outcome.task, TimeLimitExceeded(*outcome.result["exc_message"])
    call = started.task_id, revived(started.args), revived(started.kwargs)
    try:
        raise error
    except TimeLimitExceeded:
        info = ExceptionInfo()
    _try(lambda: task.on_failure(error, *call, info), task)
    _try(lambda: task.after_return(states.FAILURE, error, *call, None), task)
    said = dict(zip(("task_id", "args", "kwargs"), call, strict=True))
    signals.task_failure.send(sender=task, exception=error, traceback=error.__traceback__, einfo=info, **said)


def _try(hook: Callable[[], Any], task: Any) -> None:
    """Call the hook. One that fails is logged, and the other hooks still run."""
    try:
        hook()
    except Exception:
        logger.exception("A hook of %s failed, after its time limit", task.name)
