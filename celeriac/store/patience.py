"""Patience: how long a statement of the engine waits for a lock of somebody else's.

With nothing said it is `DEFAULT`, and `RECURRING` for what comes again by itself. Postgres ends a statement that has
waited for longer (LockNotAvailable, `failures.is_locked`), and whoever asked has a next move.

A connection that is this process' own is told the default once (`settle_in`). Behind a pooler, what a connection is
told holds for others as well: there each transaction says it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

#: Seconds that a statement waits for a lock; and those of sweeps, ticks, passes and heartbeats.
DEFAULT, RECURRING = 2.0, 0.5

#: A single `.delay()` waits so long (seconds); then its task goes to the outbox.
BRIEF = 0.15

_seconds: ContextVar[float | None] = ContextVar("celeriac patience", default=DEFAULT)

#: Under which a connection's `info` says that its session has `DEFAULT`, and is of READ COMMITTED.
SETTLED_IN = "celeriac: has settled in"

# A pooler gives its clients process ids of its own.
_SETTLE_IN = """
SELECT set_config('lock_timeout', %(patience)s, false),
    set_config('default_transaction_isolation', 'read committed', false)
WHERE pg_backend_pid() = %(pid)s
"""


@contextmanager
def patient(seconds: float | None) -> Iterator[None]:
    """No statement of this thread waits longer for a lock (seconds) meanwhile; None: for as long as it takes."""
    token = _seconds.set(seconds)
    try:
        yield
    finally:
        _seconds.reset(token)


@contextmanager
def recurring() -> Iterator[None]:
    """The same for what comes again: `RECURRING`, or less where less is said."""
    said = _seconds.get()
    with patient(RECURRING if said is None else min(said, RECURRING)):
        yield


def settle_in(raw: Any) -> bool:
    """Tells a new connection of the driver's what each of its statements needs; False, and nothing, behind a pooler."""
    parameters = {"patience": in_ms(DEFAULT), "pid": raw.info.backend_pid}
    with raw.cursor() as cursor:
        cursor.execute(_SETTLE_IN, parameters)
        is_own = cursor.fetchone() is not None
    if not raw.autocommit:
        raw.commit()
    return is_own


def lock_timeout(seconds: float | None = None, *, settled_in: bool = False, limited: bool = False) -> str:
    """A statement that says so many seconds, or what this thread has; empty where that is so without it.

    `settled_in`: the session has the default. `limited`: the transaction has said another.
    """
    bound = _seconds.get() if seconds is None else seconds
    if bound == DEFAULT and seconds is None and (settled_in or limited):
        return ""
    if bound is None:
        return "SET LOCAL lock_timeout = 0; " if settled_in and not limited else ""
    return f"SET LOCAL lock_timeout = '{in_ms(bound)}'; "


def in_ms(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))} ms"
