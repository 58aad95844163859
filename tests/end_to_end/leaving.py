"""Tasks whose handlers leave something in their process for which Python waits as it ends."""

from __future__ import annotations

import atexit
import multiprocessing
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from celeriac import Celeriac

app = Celeriac("leaving")

#: Nothing of it is collected.
left: list[Any] = []


def nap() -> None:
    time.sleep(300)


def executor() -> None:
    pool: Executor = ThreadPoolExecutor(1, thread_name_prefix="left behind")
    left.append(pool)
    pool.submit(nap)


def thread() -> None:
    threading.Thread(target=nap, name="left behind").start()


def hook() -> None:
    atexit.register(nap)


def process() -> None:
    child = multiprocessing.get_context("fork").Process(target=nap)
    left.append(child)
    child.start()


WAYS: dict[str, Callable[[], None]] = {way.__name__: way for way in (executor, thread, hook, process)}


@app.task(shared=False, role="leaves")
def leaves(way: str) -> None:
    WAYS[way]()
