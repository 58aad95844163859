"""Tasks whose handlers fork, for the tests of what their children may do. Each tells the `ran` table who ran."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import billiard

from celeriac import Celeriac, Task
from tests.end_to_end.shop import tell

app = Celeriac("forking")


@app.task(shared=False, bind=True, role="made")
def made(self: Task[..., Any], by: str) -> str:
    tell(self, f"made by {by}")
    return by


def call(by: str) -> None:
    made.delay(by)


def _nap(_: int) -> None:
    time.sleep(300)


def _joined(child: Any) -> None:
    child.start()
    child.join()


@contextmanager
def _may_have_children() -> Iterator[None]:
    """A process of Celery's pool is a daemon, which may have no children but by `os.fork`; programs that need others
    lift that as this does.
    """
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    before, config["daemon"] = config.get("daemon"), False
    try:
        yield
    finally:
        config["daemon"] = before


def _forked(end: Callable[[], Any]) -> int:
    """Runs the rest of the handler in a child; the parent waits for it. 0 in the child."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return pid
    call(f"fork {end.__name__}")
    end()
    return 0


def returns() -> None: ...


def exits() -> None:
    sys.exit(3)


def breaks() -> None:
    raise ValueError("in the child")


def leaves() -> None:
    os._exit(0)


def _pooled() -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(call, ["pool"])


def _executed() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as executor:
        executor.submit(call, "executor").result()


def _terminated() -> None:
    child = multiprocessing.get_context("fork").Process(target=_nap, args=(0,))
    child.start()
    child.terminate()
    child.join()


WAYS: dict[str, Callable[[], Any]] = {
    "process": lambda: _joined(multiprocessing.get_context("fork").Process(target=call, args=("process",))),
    "billiard": lambda: _joined(billiard.Process(target=call, args=("billiard",))),
    "pool": _pooled,
    "executor": _executed,
    "fork returns": lambda: _forked(returns),
    "fork exits": lambda: _forked(exits),
    "fork breaks": lambda: _forked(breaks),
    "fork leaves": lambda: _forked(leaves),
}


@app.task(shared=False, bind=True, role="forks", chunk=1, max_losses=1)
def forks(self: Task[..., Any], way: str) -> str:
    """Returns "parent", or, in a child, "child"."""
    pid = os.getpid()
    with _may_have_children():
        WAYS[way]()
    return "parent" if os.getpid() == pid else "child"


@app.task(shared=False, bind=True, role="forks_on_loop", chunk=1, max_losses=1)
async def forks_on_loop(self: Task[..., Any], way: str) -> str:
    """As `forks`, and waits before and after, as coroutines do."""
    await asyncio.sleep(0.01)
    pid = os.getpid()
    with _may_have_children():
        WAYS[way]()
    if os.getpid() != pid:
        return "child"
    await asyncio.sleep(0.01)
    return "parent"


@app.task(shared=False, bind=True, role="beside", chunk=1, max_losses=1)
def beside(self: Task[..., Any]) -> None:
    """Waits while others fork, and gives back what is its own; only in its own process."""
    pid = os.getpid()
    try:
        while not _rows_are_there(self):
            if os.getpid() != pid:
                made.delay("beside")
            time.sleep(0.05)
    finally:
        tell(self, "beside" if os.getpid() == pid else "beside, in a child")


def _rows_are_there(task: Task[..., Any]) -> bool:
    with app.database.statement() as connection:
        return bool(connection.exec_driver_sql("SELECT FROM ran WHERE role = 'over'").all())


@app.task(shared=False, bind=True, role="over")
def over(self: Task[..., Any]) -> None:
    """Ends those beside."""
    tell(self, "over")


@app.task(shared=False, bind=True, role="terminates", chunk=1, max_losses=1)
def terminates(self: Task[..., Any], with_pool: bool = True) -> str:
    with _may_have_children():
        _terminated()
        if with_pool:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                pool.map_async(_nap, range(2))
    return "done"


#: Signals that a child may get, each of which ends a program that does not handle it.
SIGNALS = ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2")


@app.task(shared=False, bind=True, role="signals", chunk=1, max_losses=1)
def signals(self: Task[..., Any], when: str) -> dict[str, int]:
    """Returns how a child ended that got this signal, for each as `subprocess` tells it. `when`: "at once", or "later",
    when the child has begun.
    """
    return {name: _ended_by(signal.Signals[name], when) for name in SIGNALS}


def _ended_by(number: signal.Signals, when: str) -> int:
    begins, began = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(began, b".")
        _nap(0)
    if when == "later":
        os.read(begins, 1)
    os.kill(pid, number)
    os.close(begins)
    os.close(began)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
