"""Celery's pools: processes, the worker's own process, or threads and greenlets that share one."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from celery._state import _task_stack
from celery.concurrency import ALIASES
from celery.utils.imports import symbol_by_name

from celeriac.errors import ConfigurationError
from celeriac.roles.role import Role
from celeriac.roles.rules import TICKET
from celeriac.run import descriptors, interrupts
from celeriac.run.flights import THREADS
from celeriac.run.places import SharedPlace, places
from celeriac.run.watch import watch

WIDE = "asyncio"

#: Pools whose tasks share a process: the kind of place, and the log line about how tasks are interrupted there.
KINDS: Mapping[str, tuple[type[SharedPlace], str]] = {
    "threads": (
        interrupts.Thread,
        "-P threads: a task that is cancelled or at its soft time limit is interrupted in its Python code; a call that "
        "blocks ends first, so give it a timeout. Nothing stops a thread",
    ),
    "gevent": (
        interrupts.Greenlet,
        "-P gevent: a task that is cancelled or at its soft time limit is interrupted where it waits; one that "
        "computes without waiting holds up all others, and nothing stops it",
    ),
    WIDE: (
        interrupts.Thread,
        "-P asyncio: a task that is cancelled or at its soft time limit gets CancelledError where it awaits; one that "
        "computes or blocks holds up all others, and nothing stops it. A handler that is no coroutine has one of "
        f"{THREADS} threads, and is interrupted as with -P threads",
    ),
}

#: Replacements of Celery's own pools, whose slots would each need a connection, and get work only from Redis.
INSTEAD = {
    "celery.concurrency.thread:TaskPool": "celeriac.worker.wide:Threads",
    "celery.concurrency.gevent:TaskPool": "celeriac.worker.greenlets:Greenlets",
}

#: Number of open files counted for each task: a connection of its own, and one to Postgres.
FILES = 2

#: Number of open files that such a process itself needs, with a reserve (`descriptors.MOST`).
OWN_FILES = 256

#: Number of connections for the watch and for repairs.
BESIDE = 2


def kind_of(pool: type) -> str:
    """Return Celery's name of the pool or of its base class. Raises ConfigurationError for any other pool."""
    paths = [f"{kind.__module__}:{kind.__qualname__}" for kind in pool.__mro__]
    names = [alias for path in paths for alias, named in ALIASES.items() if named == path]
    if names and names[0] in ("prefork", "solo", *KINDS):
        return names[0]
    raise ConfigurationError(
        f"-P {(names or paths)[0]}: a task there could be neither cancelled nor told of its time limit; use prefork or "
        "solo, or, for tasks that wait for the network, asyncio, threads or gevent"
    )


def instead_of(pool: type) -> type:
    """Return the replacement of Celery's own pool; a custom pool stays, and gets its tickets from Celery."""
    path = INSTEAD.get(f"{pool.__module__}:{pool.__qualname__}")
    return pool if path is None else symbol_by_name(path)


def refuse_hard_limits(kind: str, served: Iterable[Role]) -> None:
    """Raise ConfigurationError if a role has a hard limit and this pool cannot stop its tasks."""
    limited = [role.name for role in served if role.hard_timeout is not None]
    if kind in KINDS and limited:
        names = ", ".join(limited[:5]) + (", …" if len(limited) > 5 else "")
        raise ConfigurationError(
            f"-P {kind}: nothing there stops a task at its hard time limit (hard_timeout, time_limit), and these roles "
            f"have one: {names}; use prefork for them, and -Q to leave them out here"
        )


def refuse_autoscale(kind: str, asked: object) -> None:
    """Raise ConfigurationError for autoscale in pools in which it saves nothing, and would end Celery's worker."""
    if kind in KINDS and asked:
        raise ConfigurationError(f"-P {kind}: slots without a task cost nothing; give -c in place of --autoscale")


def offer() -> None:
    """Add `asyncio` to Celery's `-P`, also if Celery's command line has listed the pools before."""
    ALIASES.setdefault(WIDE, "celeriac.worker.wide:TaskPool")
    command = sys.modules.get("celery.bin.worker")
    if command is not None and WIDE not in command.WORKERS_POOL.choices:
        command.WORKERS_POOL.choices = (*command.WORKERS_POOL.choices, WIDE)


def connections(kind: str, concurrency: int) -> int:
    """Return how many connections a process may need at once. A coroutine needs none."""
    return (min(concurrency, THREADS) if kind == WIDE else concurrency) + BESIDE


def files(slots: int) -> int:
    """Return how many files the process may need open; 0 if each task has a process of its own."""
    return 0 if places.kind is None else OWN_FILES + FILES * slots


def refuse_without_greenlets() -> None:
    """Raise ConfigurationError if the asyncio pool cannot work here."""
    if find_spec("greenlet") is None:
        raise ConfigurationError("-P asyncio: greenlet is not there: pip install 'celeriac[asyncio]'")
    if not hasattr(_task_stack, "__ident_func__"):
        raise ConfigurationError("-P asyncio: USE_FAST_LOCALS is set, and Celery's fast locals know threads alone")


def prepare(kind: str) -> None:
    """Prepare the process, before anything of the worker connects to Postgres. Raises ConfigurationError."""
    if kind == WIDE:
        refuse_without_greenlets()
    if kind == "gevent":
        from celeriac.worker import greenlets

        greenlets.wait_for_postgres()
    places.kind = KINDS[kind][0] if kind in KINDS else None


def notes(slots: int) -> Iterator[str]:
    """Yield log lines, if tasks share a process: how they are interrupted, and whether open files may run short."""
    yield from (line for kind, line in KINDS.values() if kind is places.kind)
    if places.kind is not None and (most := descriptors.limit()) is not None and most < FILES * slots:
        yield (
            f"This process may have {most} files open, and {slots} tasks at once may need more: raise the hard limit "
            "(ulimit -Hn, LimitNOFILE=), or give a smaller -c"
        )


def guard(tasks: Mapping[str, Any]) -> None:
    """Make tasks that share a process interruptible."""
    if places.kind is None:
        return
    watch.start()
    for name, task in tasks.items():
        if name != TICKET:
            interrupts.guard(task)
