"""Hooks and receivers of signals that are `async def`: Celery calls them, and would drop the coroutine that it gets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any
from weakref import ReferenceType

from celery import signals

from celeriac.errors import ConfigurationError
from celeriac.run import coroutines
from celeriac.run import run as running

HOOKS = ("before_start", "on_success", "on_failure", "on_retry", "after_return")


def adapt(task: Any) -> None:
    """Make the task's `async def` hooks run to their end when Celery calls them. Raises ConfigurationError for such a
    `__call__`, whose result Celery would take for the handler's.
    """
    kind = type(task)
    if is_async(kind.__call__):
        raise ConfigurationError(
            f"role {task.name!r}: `__call__` of {kind.__name__} is `async def`, and Celery calls it as a function: put "
            "what comes before the handler into `before_start`, which may be `async def`, or decorate the handler"
        )
    for name in HOOKS:
        if is_async(hook := getattr(task, name)):
            setattr(task, name, _run_to_its_end(task, hook))


def is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(function))


def _run_to_its_end(task: Any, hook: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(hook)
    def call(*args: Any, **kwargs: Any) -> Any:
        run = running.current()
        if run is None or run.outcome is not None:  # nothing stops a hook that comes after the outcome
            return coroutines.finish(hook(*args, **kwargs), None)
        run.is_async = coroutines.is_coroutine(task)
        return coroutines.result_of(hook(*args, **kwargs), run)

    return call


def dropped(app: Any) -> Iterator[str]:
    """Yield a line for each receiver of Celery's signals that is `async def`: nobody runs it."""
    of_app = ("on_configure", "on_after_configure", "on_after_finalize", "on_after_fork")
    for signal in [*vars(signals).values(), *map(partial(getattr, app), of_app)]:
        for _, held in getattr(signal, "receivers", None) or ():
            receiver = held() if isinstance(held, ReferenceType) else held
            if receiver is not None and is_async(receiver):
                named = f"{receiver.__module__}.{receiver.__qualname__}"
                yield (
                    f"{named} is `async def` and never runs: Celery calls receivers of the signal {signal.name} as "
                    "functions; connect a function, or use hooks of a task, which may be `async def`"
                )
