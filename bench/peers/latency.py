"""Start latency at a steady pace: from before the enqueue to the handler's first line, so many a second."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from statistics import quantiles

from bench.peers.peer import Figures, Peer
from bench.size import sized

#: Enqueues a second, and for how many seconds.
RATES: Mapping[int, int] = {10: sized(8, 1), 100: sized(5, 1), 500: sized(4, 1)}

#: Seconds after which what has not started is left out, and the seconds of a pace that warms up.
PATIENCE, WARM = sized(10, 5), 1

#: The shares that are told.
SHARES = (50, 95, 99)


def latencies(peer: Peer) -> Figures:
    """By rate and share those below which 50, 95 and 99 % of the latencies are (ms), of those that started in time."""
    peer.fill(0, "noop", 0)
    found: Figures = {}
    with stamps() as wait, ExitStack() as life:
        for _ in range(peer.processes):
            life.enter_context(peer.work())
        peer.paced(10, WARM)
        wait(10 * WARM)
        for rate, seconds in RATES.items():
            peer.paced(rate, seconds)
            parts = _shares(wait(rate * seconds))
            found |= {f"{rate}/s p{share}": part for share, part in zip(SHARES, parts, strict=True)}
    return found


def _shares(seconds: list[float]) -> list[float]:
    parts = quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else [float("inf")] * 99
    return [parts[share - 1] * 1000 for share in SHARES]


@contextmanager
def stamps() -> Iterator[Callable[[int], list[float]]]:
    """Waits for so many, and forgets them."""
    heard: list[float] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as at:
        at.bind(("127.0.0.1", 0))
        os.environ["BENCH_STAMPS"] = str(at.getsockname()[1])
        ear = threading.Thread(target=_hear, args=(at, heard), daemon=True)
        ear.start()

        def wait(wanted: int) -> list[float]:
            gives_up = time.monotonic() + PATIENCE
            while len(heard) < wanted and time.monotonic() < gives_up:
                time.sleep(0.01)
            found = heard[:wanted]
            heard.clear()
            return found

        yield wait
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to:
            to.sendto(b"", at.getsockname())
        ear.join()


def _hear(at: socket.socket, heard: list[float]) -> None:
    """Until an empty one."""
    while told := at.recv(100):
        heard.append(float(told))
