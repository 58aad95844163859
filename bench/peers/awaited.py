"""Awa's part, run by a Python that has it: `fill N TASK SIZE`, `single N`, `within N`, `paced RATE SECONDS`,
`work`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import awa

from bench.peers import pace
from bench.peers.pace import asked, payload, stamp, steady

#: Where that is, it reads of the variables.
DATABASE = f"postgresql:///{os.environ['PGDATABASE']}"

QUEUE = "bench"

#: As the project's own benchmark in Python has it.
WORKERS = 256


@dataclass
class Noop:
    n: int | str


@dataclass
class Sleep:
    n: int


@dataclass
class Compute:
    n: int


@dataclass
class Stamp:
    sent: float


TASKS: dict[str, Callable[[Any], Any]] = {"noop": Noop, "sleep": Sleep, "compute": Compute}


async def work() -> None:
    async with awa.AsyncClient(DATABASE) as client:

        @client.task(Noop, queue=QUEUE)
        async def noop(job: awa.Job) -> None:
            """Nothing."""

        @client.task(Sleep, queue=QUEUE)
        async def slept(job: awa.Job) -> None:  # noqa: ARG001
            await asyncio.sleep(0.001)

        @client.task(Compute, queue=QUEUE)
        async def computed(job: awa.Job) -> None:  # noqa: ARG001
            pace.compute()

        @client.task(Stamp, queue=QUEUE)
        async def stamped(job: awa.Job) -> None:
            stamp(job.args.sent)

        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        await client.start([(QUEUE, WORKERS)])
        await ended.wait()
        await client.shutdown()


def fill(n: int, task: str, size: int) -> float:
    """Its schema is made anew before."""
    client = awa.Client(DATABASE)
    client.migrate()
    client.install_queue_storage(reset=True)
    jobs = [TASKS[task](payload(i, size)) for i in range(n)]
    began = time.perf_counter()
    if jobs:
        client.enqueue_many_copy(jobs, queue=QUEUE)
    return time.perf_counter() - began


def single(n: int) -> float:
    client = awa.Client(DATABASE)
    began = time.perf_counter()
    for i in range(n):
        client.insert(Noop(i), queue=QUEUE)
    return time.perf_counter() - began


def within(n: int) -> float:
    client = awa.Client(DATABASE)
    began = time.perf_counter()
    for i in range(n):
        with client.transaction() as transaction:
            transaction.execute("INSERT INTO bench_orders (n) VALUES ($1)", i)
            transaction.insert(Noop(i), queue=QUEUE)
    return time.perf_counter() - began


def paced(rate: float, seconds: float) -> None:
    client = awa.Client(DATABASE)
    for now in steady(rate, seconds):
        client.insert(Stamp(now), queue=QUEUE)


if __name__ == "__main__":
    verb, *given = sys.argv[1:]
    if verb == "work":
        asyncio.run(work())
    elif verb == "paced":
        paced(*asked())
    elif verb == "fill":
        print(fill(int(given[0]), given[1], int(given[2])))
    else:
        print({"single": single, "within": within}[verb](int(given[0])))
