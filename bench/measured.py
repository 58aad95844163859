"""The tasks that are measured: the same no-ops, plain and on rows."""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta

from celery import Celery

from bench.peers import pace
from celeriac import Celeriac, Settings

plain = Celery("plain", broker=os.environ["REDIS_URL"], set_as_current=False)
plain.conf.task_ignore_result = True
plain.conf.task_default_queue = "bench_plain"
plain.conf.worker_prefetch_multiplier = 4

rows = Celeriac("rows", settings=Settings.from_environ())


@plain.task(name="bench.plain_noop")
def plain_noop(n: int) -> None:
    """Nothing."""


@plain.task(name="bench.plain_stamp")
def plain_stamp(sent: float) -> None:
    _stamp("plain", time.time() - sent)


@plain.task(name="bench.plain_paced")
def plain_paced(sent: float) -> None:
    pace.stamp(sent)


@rows.task(role="noop")
def noop(n: int) -> None:
    """Nothing."""


@rows.task(role="brief", keep=timedelta(seconds=1))
def brief(n: int) -> None:
    """Nothing, and its success is kept for a second."""


@rows.task(role="gone", keep=timedelta(0))
def gone(n: int) -> None:
    """Nothing, and nothing is kept of it."""


@rows.task(role="swift", keep=timedelta(0), batch_size=2500, window=5000)
def swift(n: int) -> None:
    """The same, as docs/workers.md has it for many small tasks."""


@plain.task(name="bench.plain_sleep")
def plain_sleep(n: int) -> None:  # noqa: ARG001
    pace.sleep()


@plain.task(name="bench.plain_compute")
def plain_compute(n: int) -> None:  # noqa: ARG001
    pace.compute()


@rows.task(role="sleep")
def sleep(n: int) -> None:  # noqa: ARG001
    pace.sleep()


@rows.task(role="compute")
def compute(n: int) -> None:  # noqa: ARG001
    pace.compute()


@rows.task(role="total")
def total(results: list[None]) -> int:
    """The body of a chord of no-ops."""
    return len(results)


@rows.task(role="stamp")
def stamp(sent: float) -> None:
    _stamp("rows", time.time() - sent)


@rows.task(role="paced")
def paced(sent: float) -> None:
    pace.stamp(sent)


def _stamp(which: str, latency: float) -> None:
    """Start latency in seconds, to whoever waits at the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.sendto(f"{which} {latency}".encode(), os.environ["BENCH_SOCKET"])
