"""Patience: how long a statement of the engine waits for a lock of somebody else's.

It holds for what a thread does within `patient`, and is said in each transaction: behind a pooler, what a connection is
told holds for others as well. Postgres ends a statement that has waited for longer (LockNotAvailable,
`failures.is_locked`), and whoever asked has a next move.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_seconds: ContextVar[float | None] = ContextVar("celeriac patience", default=None)


@contextmanager
def patient(seconds: float | None) -> Iterator[None]:
    """No statement of this thread waits longer for a lock (seconds) meanwhile; None: for as long as it takes."""
    token = _seconds.set(seconds)
    try:
        yield
    finally:
        _seconds.reset(token)


def lock_timeout(seconds: float | None = None) -> str:
    """A statement that says so many seconds, or what this thread has; empty if there is no bound."""
    bound = _seconds.get() if seconds is None else seconds
    return "" if bound is None else f"SET LOCAL lock_timeout = '{max(1, round(bound * 1000))} ms'; "
