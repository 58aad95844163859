"""Patience: how long a statement of the engine waits for somebody else's lock.

The default is `DEFAULT`; for work that is repeated anyway it is `RECURRING`. Postgres ends a statement that has waited
for longer (LockNotAvailable, `failures.is_locked`), and its caller goes on in another way. The default is set once on a
connection of this process's own (`settle_in`). Behind a pooler, where a session's settings apply to others as well,
each transaction sets it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

#: Seconds that a statement waits for a lock, and seconds that one of sweeps, ticks, passes and heartbeats does.
DEFAULT, RECURRING = 2.0, 0.5

#: Seconds that a single `.delay()` waits before its task goes to the outbox.
BRIEF = 0.15

#: Seconds that each further statement of a round of work waits once the round has met a lock: what else it has to do
#: may need the same rows, and forty waits would follow one another.
HURRIED = 0.02

#: Seconds that the statements of this thread wait for a lock; None: for as long as it takes.
PATIENCE: ContextVar[float | None] = ContextVar("celeriac patience", default=DEFAULT)

#: The key in a connection's `info` for a session that has `DEFAULT` and READ COMMITTED set.
SETTLED_IN = "celeriac: has settled in"

#: The key in a connection's `info` for what goes with its next statement: the BEGIN of its transaction, settings.
UNSAID = "celeriac: begins"

# Behind a pooler the ids differ, because it gives its clients process ids of its own.
_SETTLE_IN = """
SELECT set_config('lock_timeout', %(patience)s, false),
    set_config('default_transaction_isolation', 'read committed', false)
WHERE pg_backend_pid() = %(pid)s
"""


@contextmanager
def patient(seconds: float | None) -> Iterator[None]:
    """Limit how long this thread's statements wait for a lock meanwhile (seconds); None: for as long as it takes."""
    token = PATIENCE.set(seconds)
    try:
        yield
    finally:
        PATIENCE.reset(token)


@contextmanager
def recurring() -> Iterator[None]:
    """Limit it to `RECURRING`, or less if less is set, for work that is repeated anyway."""
    said = PATIENCE.get()
    with patient(RECURRING if said is None else min(said, RECURRING)):
        yield


@contextmanager
def hurried(has_met_a_lock: bool) -> Iterator[None]:
    """Limit it to `HURRIED` if this round of work has met a lock."""
    with patient(HURRIED if has_met_a_lock else PATIENCE.get()):
        yield


def settle_in(raw: Any) -> bool:
    """Set on a new connection what each of its statements needs; behind a pooler set nothing and return False."""
    parameters = {"patience": in_ms(DEFAULT), "pid": raw.info.backend_pid}
    with raw.cursor() as cursor:
        cursor.execute(_SETTLE_IN, parameters)
        is_own = cursor.fetchone() is not None
    if not raw.autocommit:
        raw.commit()
    return is_own


def lock_timeout(seconds: float | None = None, *, settled_in: bool = False, limited: bool = False) -> str:
    """Return a statement that sets this limit (seconds), or this thread's; empty if it applies already.

    `settled_in`: the session has the default. `limited`: the transaction has set another.
    """
    bound = PATIENCE.get() if seconds is None else seconds
    if bound == DEFAULT and seconds is None and (settled_in or limited):
        return ""
    if bound is None:
        return "SET LOCAL lock_timeout = 0; " if settled_in and not limited else ""
    return f"SET LOCAL lock_timeout = '{in_ms(bound)}'; "


@lru_cache(maxsize=64)
def in_ms(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))} ms"
