"""What a step is, and what steps have in common."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from tests.example.seventy import code

PATIENCE = 90

CELERY = (sys.executable, "-m", "celery", "-A", "tests.example.seventy.code")

STEPS: dict[str, Callable[[], Any]] = {}


def step(made: Callable[[], Any]) -> Callable[[], Any]:
    STEPS[made.__name__] = made
    return made


def ended(result: Any) -> Any:
    return result.get(timeout=PATIENCE)


def error_of(act: Callable[[], Any], kind: type[Exception] = Exception) -> str:
    """The class by which code that knows only Celery catches the error: `kind`, if the error is one."""
    try:
        return f"no error, but {act()!r}"
    except kind as error:
        names = (kind, *type(error).__mro__) if kind is not Exception else type(error).__mro__
        return next(one.__name__ for one in names if not one.__module__.startswith("celeriac"))


def outcome(result: Any) -> list[Any]:
    """What a caller sees of a task that may have failed."""
    value = result.get(timeout=PATIENCE, propagate=False)
    return [result.state, repr(value)]


def eventually(ask: Callable[[], Any]) -> Any:
    """The first true answer, or the last one there is in time."""
    ends = time.monotonic() + PATIENCE
    while not (value := ask()) and time.monotonic() < ends:
        time.sleep(0.05)
    return value


def noted(key: str, count: int = 1) -> list[str]:
    with code.notes() as client:
        eventually(lambda: client.llen(f"notes:{key}") >= count)
        return list(client.lrange(f"notes:{key}", 0, -1))
