"""What the harness runs: a task of each kind, each telling the ledger of its begin and its end.

The result of a task is the name of the run that it came of. `FAULTS_LEDGER` is the ledger's folder, `FAULTS_WHO` the
name of the process's member, `FAULTS_BROKEN` what is switched off in it (`faults.guards`).
"""

from __future__ import annotations

import itertools
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac, Task
from celeriac.schedules import enqueuing
from faults import guards
from faults.keys import TICK
from faults.ledger import BEGIN, BROKE, END, HOARDED, Pen
from faults.size import sized

app = Celeriac(
    "faults", schedules=[enqueuing("tick", f"@every {TICK * 1000:.0f}ms", "tick", misfire="all", overlap="allow")]
)
pen = Pen(Path(os.environ["FAULTS_LEDGER"]), os.environ["FAULTS_WHO"])
guards.switch_off(os.environ.get("FAULTS_BROKEN", ""))

#: A lease in which a process of a busy machine gets its turn.
LEASE = sized(4.0, 3.0)

_number = itertools.count()
_leaked: list[bytearray] = []
_spilled: list[int] = []


class Hiccup(Exception):
    """An attempt that fails on purpose."""


@contextmanager
def noted(task: Task[..., Any], key: str | None = None) -> Iterator[str]:
    """Begin and end of a run; its name, to be returned."""
    run, request = f"{os.getpid()}-{next(_number)}", task.request
    pen.write(BEGIN, id=request.id, run=run, role=task.name, key=key, attempt=request.retries)
    try:
        yield run
    except BaseException as error:
        pen.write(BROKE, id=request.id, run=run, error=type(error).__name__)
        raise
    pen.write(END, id=request.id, run=run, role=task.name)


def work(seconds: float) -> None:
    """In slices, so that an interrupt is heard; a process that was frozen has no more to do than before."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.02))


@app.task(role="quick", bind=True, fair_by="account", stale_after=LEASE)
def quick(self: Task[..., Any], account: str) -> str:
    with noted(self) as run:
        return run


@app.task(role="locked", bind=True, fair_by="key", lock_by="key", stale_after=LEASE)
def locked(self: Task[..., Any], key: str, seconds: float = 0.02) -> str:
    with noted(self, f"lock {key}") as run:
        work(seconds)
        return run


@app.task(role="single", bind=True, unique_by="key", stale_after=LEASE)
def single(self: Task[..., Any], key: str, seconds: float = 0.03) -> str:
    with noted(self, f"unique {key}") as run:
        work(seconds)
        return run


@app.task(role="flaky", bind=True, autoretry_for=(Hiccup,), max_retries=2, retry_backoff=0.2, stale_after=LEASE)
def flaky(self: Task[..., Any]) -> str:
    with noted(self) as run:
        if self.request.retries == 0:
            raise Hiccup
        return run


@app.task(
    role="writes", bind=True, autoretry_for=(DBAPIError,), max_retries=None, retry_backoff=0.2, stale_after=LEASE,
    max_losses=20,
)  # fmt: skip
def writes(self: Task[..., Any]) -> str:
    """Writes within the attempt's transaction. What its own statement meets is its own business: it is tried again.

    Where all sessions are ended every half second, a task that needs one throughout may well lose it three times.
    """
    with noted(self) as run:
        work(0.01)
        self.session.execute(text("INSERT INTO effects VALUES (:id, :run)"), {"id": self.request.id, "run": run})
        return run


@app.task(role="link", bind=True, stale_after=LEASE)
def link(self: Task[..., Any], before: Any = None) -> str:
    """Of a chain; a member or the body of a chord."""
    with noted(self) as run:
        return run


@app.task(role="adopted", bind=True, adopt=True, stale_after=LEASE)
def adopted(self: Task[..., Any]) -> str:
    """Called by a plain Celery app."""
    with noted(self) as run:
        return run


@app.task(role="tick", bind=True, stale_after=LEASE)
def tick(self: Task[..., Any]) -> str:
    with noted(self) as run:
        return run


@app.task(role="long", bind=True, chunk=1, stale_after=LEASE)
def long(self: Task[..., Any], seconds: float) -> str:
    with noted(self) as run:
        work(seconds)
        return run


@app.task(role="hoard", bind=True, chunk=1, stale_after=LEASE)
def hoard(self: Task[..., Any], seconds: float) -> str:
    """Where `FAULTS_HOARDS` is set it takes every connection there is for its process' sessions, and keeps them."""
    with noted(self) as run, ExitStack() as held:
        while "FAULTS_HOARDS" in os.environ and not _is_exhausted(app.database.engine.pool):
            held.enter_context(app.database.engine.connect())
        if "FAULTS_HOARDS" in os.environ:
            pen.write(HOARDED)
        work(seconds)
        return run


def _is_exhausted(pool: Any) -> bool:
    """Whether the next session has to wait for a connection."""
    return bool(pool.checkedin() == 0 and pool.overflow() >= pool._max_overflow)


@app.task(role="poison", bind=True, stale_after=LEASE, max_losses=2)
def poison(self: Task[..., Any], deadly: bool) -> str:
    """Takes its process, and whoever shares its ticket, down."""
    with noted(self) as run:
        if deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return run


@app.task(role="forking", bind=True, stale_after=LEASE)
def forking(self: Task[..., Any]) -> str:
    """Nothing that a child does, or is done to it, is the worker's: neither its end nor its signals."""
    children = [_forked(lambda: time.sleep(60.0)), _forked(sys.exit)]
    os.kill(children[0], signal.SIGTERM)
    for child in children:
        os.waitpid(child, 0)
    with noted(self) as run:
        return run


def _forked(act: Callable[[], object]) -> int:
    if (pid := os.fork()) == 0:
        act()
        os._exit(0)
    return pid


@app.task(role="leaky", bind=True, stale_after=LEASE)
def leaky(self: Task[..., Any], megabytes: int) -> str:
    with noted(self) as run:
        _leaked.append(bytearray(b"x") * (megabytes * 2**20))
        return run


@app.task(role="spilling", bind=True, stale_after=LEASE)
def spilling(self: Task[..., Any]) -> str:
    """Leaves files open, in a process that may have 128."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, most))
    with noted(self) as run:
        _spilled.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(8))
        return run
