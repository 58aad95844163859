"""PgQueuer's part, run by a Python that has it: `fill N TASK SIZE`, `single N`, `within N`,
`paced RATE SECONDS`, `work`, `retain`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import uvloop
from pgqueuer import PgQueuer, run
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peers.pace import REMOVES, asked, compute, payload, stamp, steady

BATCH = 500


@asynccontextmanager
async def worker() -> AsyncIterator[PgQueuer]:
    connection = await asyncpg.connect()
    try:
        queuer = PgQueuer(AsyncpgDriver(connection))

        @queuer.entrypoint("noop")
        async def noop(job: Job) -> None:
            """Nothing."""

        @queuer.entrypoint("sleep")
        async def slept(job: Job) -> None:  # noqa: ARG001
            await asyncio.sleep(0.001)

        @queuer.entrypoint("compute")
        async def computed(job: Job) -> None:  # noqa: ARG001
            compute()

        @queuer.entrypoint("stamp")
        async def stamped(job: Job) -> None:
            stamp(float(job.payload or b"0"))

        yield queuer
    finally:
        await connection.close()


async def fill(n: int, task: str, size: int) -> float:
    """Queue, log and statistics are emptied before."""
    connection = await asyncpg.connect()
    queries = Queries(AsyncpgDriver(connection))
    await queries.clear_queue()
    await queries.clear_queue_log()
    await queries.clear_statistics_log()
    began = time.perf_counter()
    if n:
        await queries.enqueue([task] * n, [str(payload(i, size)).encode() for i in range(n)], [0] * n)
    return time.perf_counter() - began


async def single(n: int) -> float:
    connection = await asyncpg.connect()
    queries = Queries(AsyncpgDriver(connection))
    began = time.perf_counter()
    for i in range(n):
        await queries.enqueue("noop", b"%d" % i, 0)
    return time.perf_counter() - began


async def within(n: int) -> float:
    connection = await asyncpg.connect()
    queries = Queries(AsyncpgDriver(connection))
    began = time.perf_counter()
    for i in range(n):
        async with connection.transaction():
            await connection.execute("INSERT INTO bench_orders (n) VALUES ($1)", i)
            await queries.enqueue("noop", b"%d" % i, 0)
    return time.perf_counter() - began


async def retain() -> None:
    """Its log of what has finished is emptied again and again."""
    queries = Queries(AsyncpgDriver(await asyncpg.connect()))
    while True:
        await asyncio.sleep(REMOVES)
        await queries.clear_queue_log()


async def paced(rate: float, seconds: float) -> None:
    connection = await asyncpg.connect()
    queries = Queries(AsyncpgDriver(connection))
    for now in steady(rate, seconds):
        await queries.enqueue("stamp", str(now).encode(), 0)


if __name__ == "__main__":
    verb, *given = sys.argv[1:]
    if verb == "work":
        uvloop.run(run(worker, batch_size=BATCH))
    elif verb == "paced":
        asyncio.run(paced(*asked()))
    elif verb == "fill":
        print(asyncio.run(fill(int(given[0]), given[1], int(given[2]))))
    elif verb == "retain":
        asyncio.run(retain())
    else:
        print(asyncio.run({"single": single, "within": within}[verb](int(given[0]))))
