"""A steady pace, the stamps of what started, and what else tasks do; the standard library alone, as every peer's Python
reads it.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator

#: How long (seconds) after one removal of what has finished the next follows, where retention is at work.
REMOVES = 0.5


def steady(rate: float, seconds: float) -> Iterator[float]:
    """The time (of `time.time`), whenever the next is due; one that is late is due at once."""
    began = time.monotonic()
    for n in range(int(rate * seconds)):
        time.sleep(max(0.0, began + n / rate - time.monotonic()))
        yield time.time()


def stamp(sent: float) -> None:
    """To whoever listens: how many seconds ago that was."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to:
        to.sendto(str(time.time() - sent).encode(), ("127.0.0.1", int(os.environ["BENCH_STAMPS"])))


def sleep() -> None:
    """For 1 ms."""
    time.sleep(0.001)


def compute() -> None:
    """10 ms of the processor."""
    ends = time.thread_time() + 0.01
    while time.thread_time() < ends:
        pass


def payload(i: int, size: int) -> int | str:
    """What a task is called with: a number, or a text of so many characters."""
    return f"{i:0{size}}" if size else i


def asked() -> tuple[float, float]:
    """The rate and the seconds of a command line that ends with them."""
    rate, seconds = sys.argv[-2:]
    return float(rate), float(seconds)
