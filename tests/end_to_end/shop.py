"""Tasks for the tests of the worker. Each tells the `ran` table of its runs, so that overlap and loss can be seen."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from celery import current_task
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from celeriac import Celeriac, Permanent, Task

app = Celeriac("shop")


def tell(task: Task[..., Any], what: str) -> None:
    """Outlasts a Postgres that restarts: a test that kills it is about the engine's rows, not about these."""
    row = {"id": task.request.id, "role": task.name, "pid": os.getpid(), "what": what}
    while True:
        try:
            with app.database.statement() as connection:
                connection.execute(
                    text("INSERT INTO ran (task_id, role, pid, what) VALUES (:id, :role, :pid, :what)"), row
                )
            return
        except OperationalError:
            time.sleep(0.1)


RAN = """CREATE TABLE IF NOT EXISTS ran (
    n bigserial, task_id text, role text, pid int, what text, at timestamptz DEFAULT clock_timestamp())"""


@app.task(shared=False, bind=True, role="add")
def add(self: Task[..., Any], a: int, b: int = 1) -> int:
    return a + b


@app.task(shared=False, role="garbage")
def garbage() -> list[int]:
    """After how many new objects its process looks for garbage."""
    return list(gc.get_threshold())


@app.task(shared=False, bind=True, role="slow", chunk=1, stale_after=3, max_losses=5)
def slow(self: Task[..., Any], seconds: float) -> str:
    """Runs for a while and tells when it begins and ends."""
    tell(self, "begin")
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        time.sleep(0.02)
    tell(self, "end")
    return "done"


@app.task(shared=False, bind=True, role="starting", chunk=1, max_losses=1)
def starting(self: Task[..., Any], seconds: float) -> None:
    """Starts a process that outlasts it."""
    tell(self, str(subprocess.Popen(["sleep", "300"]).pid))
    time.sleep(seconds)


@app.task(shared=False, bind=True, role="awaiting", chunk=1, stale_after=3, max_losses=5)
async def awaiting(self: Task[..., Any], seconds: float) -> str:
    """Waits on its loop, and tells why it is stopped."""
    tell(self, "begin")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        tell(self, str(self.stopped_because))
        raise
    tell(self, "end")
    return "done"


@app.task(shared=False, bind=True, role="writing", stale_after=3, max_losses=5)
async def writing(self: Task[..., Any], seconds: float) -> None:
    """Writes what commits with its outcome, and waits."""
    wrote = {"id": self.request.id, "pid": os.getpid()}
    await self.session.execute(text("INSERT INTO ran (task_id, pid, what) VALUES (:id, :pid, 'wrote')"), wrote)
    tell(self, "begin")
    await asyncio.sleep(seconds)


@app.task(shared=False, bind=True, role="linger")
async def linger(self: Task[..., Any], seconds: float, n: int = 0) -> int:
    """Says whether what it sees of itself stays its own while others run."""
    mine = self.request.id
    await asyncio.sleep(seconds)
    assert self.request.id == mine == current_task.request.id == self.idempotency_key
    return n


@app.task(shared=False, bind=True, role="blocking", max_retries=0)
async def blocking(self: Task[..., Any], seconds: float) -> None:
    """Blocks the loop of all."""
    time.sleep(seconds)  # noqa: ASYNC251 - on purpose


@app.task(shared=False, bind=True, role="asking", max_retries=1)
async def asking(self: Task[..., Any]) -> str:
    """All that a coroutine may ask of its task."""
    await self.progress({"done": 1})
    await self.raise_if_cancelled()
    self.log.info("half way")
    add.delay(40, 2)
    if self.request.retries == 0:
        raise self.retry(countdown=0)
    return "asked"


@app.task(shared=False, bind=True, role="ticking", chunk=1, stale_after=3, max_losses=5)
def ticking(self: Task[..., Any], seconds: float) -> str:
    """Tells all the time that it runs."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        tell(self, "tick")
        time.sleep(0.05)
    return "done"


@app.task(
    shared=False,
    bind=True,
    role="flaky",
    autoretry_for=(ValueError,),
    max_retries=2,
    retry_backoff=0.1,
    retry_jitter=False,
    max_rounds=2,
)
def flaky(self: Task[..., Any], fail: int) -> int:
    """Fails `fail` attempts, then succeeds."""
    tell(self, "begin")
    (run,) = (self.run_under_way,)
    with app.database.statement() as connection:
        seen = connection.execute(
            text("SELECT count(*) FROM ran WHERE task_id = :id"), {"id": run.task.task_id}
        ).scalar_one()
    if seen <= fail:
        raise ValueError(f"attempt {seen}")
    return int(seen)


@app.task(shared=False, bind=True, role="permanent", autoretry_for=(Exception,), max_retries=5, max_rounds=5)
def permanent(self: Task[..., Any]) -> None:
    tell(self, "begin")
    raise Permanent("no use")


@app.task(shared=False, bind=True, role="later")
def later(self: Task[..., Any]) -> None:
    raise self.retry(countdown=1000)


@app.task(shared=False, bind=True, role="parent")
def parent(self: Task[..., Any], fail: bool = False) -> None:
    """A follow-up and a write of its own, with its outcome."""
    self.session.execute(text("INSERT INTO ran (task_id, role, what) VALUES ('parent', 'parent', 'wrote')"))
    add.delay(1)
    if fail:
        raise RuntimeError("after the write")


@app.task(shared=False, bind=True, role="snoozer")
def snoozer(self: Task[..., Any]) -> str:
    tell(self, "begin")
    with app.database.statement() as connection:
        seen = connection.execute(text("SELECT count(*) FROM ran WHERE role = 'snoozer'")).scalar_one()
    if seen < 3:
        raise self.snooze(0.1, "not yet")
    return "awake"


@app.task(shared=False, bind=True, role="limited", timeout=0.5, chunk=1, max_retries=0)
def limited(self: Task[..., Any], stubborn: bool = False, progress: bool = False) -> str:
    """Runs past its limit: politely, ignoring the interrupt, or prolonging it by progress."""
    tell(self, "begin")
    if progress:
        for step in range(8):
            self.progress({"step": step})
            time.sleep(0.2)
        return "long, but alive"
    while True:
        try:
            time.sleep(30)
        except Exception:
            if not stubborn:
                raise


def endure(self: Task[..., Any], seconds: float) -> str:
    """Goes on whatever interrupts it, and tells what did."""
    tell(self, "begin")
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        try:
            time.sleep(0.02)
        except Exception as error:
            tell(self, type(error).__name__)
    return "done"


app.task(bind=True, role="reminded", soft_time_limit=0.3, max_retries=0)(endure)
app.task(bind=True, role="tidy", soft_time_limit=0.3, time_limit=30, max_retries=0)(endure)
app.task(bind=True, role="warned", soft_time_limit=0.3, time_limit=1, max_retries=0)(endure)
app.task(bind=True, role="unwarned", time_limit=1, max_retries=0)(endure)
app.task(bind=True, role="hurried", hard_timeout=1, max_retries=0)(endure)


@app.task(shared=False, bind=True, role="meeting", chunk=1, stale_after=3)
def meeting(self: Task[..., Any], others: int, end: str = "end") -> int:
    """Ends once so many have begun, and somebody has written `end` (if that is another word)."""
    tell(self, "begin")
    wanted = "SELECT count(DISTINCT task_id) FILTER (WHERE what = 'begin'), bool_or(what = :end) FROM ran"
    while True:
        with app.database.statement() as connection:
            begun, ends = connection.execute(text(wanted), {"end": end}).one()
        if begun >= others and (ends or end == "end"):
            break
        time.sleep(0.02)
    tell(self, "end")
    return threading.get_ident()


@app.task(shared=False, bind=True, role="queuing", chunk=1, stale_after=3)
def queuing(self: Task[..., Any]) -> str:
    """Waits in Postgres until nobody has its lock 1 alone."""
    tell(self, "begin")
    self.session.execute(text("SELECT pg_advisory_xact_lock_shared(1)"))
    return "done"


@app.task(shared=False, bind=True, role="gather")
def gather(self: Task[..., Any], threads: list[int]) -> int:
    return len(set(threads))


@app.task(shared=False, bind=True, role="leaver", chunk=1, max_retries=0, max_rounds=1)
def leaver(self: Task[..., Any]) -> None:
    """Would end its process."""
    tell(self, "begin")
    sys.exit(3)


@app.task(shared=False, bind=True, role="mixed", chunk=10)
def mixed(self: Task[..., Any], seconds: float) -> None:
    tell(self, "begin")
    time.sleep(seconds)


@app.task(shared=False, bind=True, role="suspect", chunk=10)
def suspect(self: Task[..., Any], deadly: bool = False) -> None:
    """Deadly: takes its process, and the tickets of whoever shares it, down."""
    tell(self, "begin")
    if deadly:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(shared=False, bind=True, role="deadly", chunk=10, max_losses=1, stale_after=3)
def deadly(self: Task[..., Any], kills: bool = False) -> None:
    """Shares its ticket, and runs once at most."""
    tell(self, "begin")
    if kills:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(shared=False, bind=True, role="hog", chunk=1)
def hog(self: Task[..., Any], megabytes: int) -> None:
    """Holds so much memory until somebody writes 'leave' into `ran`."""
    held = bytearray(megabytes * 1024 * 1024)
    held[::4096] = b"x" * len(held[::4096])
    tell(self, "holding")
    with app.database.statement() as connection:
        while not connection.execute(text("SELECT FROM ran WHERE what = 'leave'")).all():
            time.sleep(0.05)


_kept: list[bytearray] = []


@app.task(shared=False, bind=True, role="leaky", chunk=1)
def leaky(self: Task[..., Any], megabytes: int) -> int:
    """Leaves so much memory behind in its process."""
    _kept.append(bytearray(b"x") * (megabytes * 1024 * 1024))
    return os.getpid()


@app.task(shared=False, role="spiller", chunk=4)
def spiller(files: int) -> int:
    """Opens so many files and never closes them, in a process that may have 128."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, most))
    _kept.extend(open(__file__) for _ in range(files))  # noqa: SIM115
    return os.getpid()


@app.task(shared=False, role="reader", window=1000)
async def reader(seconds: float) -> None:
    """Has a file open for as long as it lasts."""
    with open(__file__):  # noqa: ASYNC230 - on purpose
        await asyncio.sleep(seconds)


@app.task(shared=False, role="nap", chunk=1, window=8)
def nap(seconds: float) -> None:
    time.sleep(seconds)


@app.task(shared=False, role="doze", chunk=1, window=20)
def doze(seconds: float) -> None:
    time.sleep(seconds)


@app.task(shared=False, role="snore", chunk=1, window=40)
def snore(seconds: float) -> None:
    time.sleep(seconds)
