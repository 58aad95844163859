"""PgQueuer's part of `bench.peers`: filling its queue, and `python -m bench.pgqueued`, a process of its worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import uvloop
from pgqueuer import PgQueuer, run
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

BATCH = 500


@asynccontextmanager
async def worker() -> AsyncIterator[PgQueuer]:
    connection = await asyncpg.connect()
    try:
        queuer = PgQueuer(AsyncpgDriver(connection))

        @queuer.entrypoint("noop")
        async def noop(job: Job) -> None:
            """Nothing."""

        yield queuer
    finally:
        await connection.close()


def fill(n: int) -> float:
    """Empties queue, log and statistics, then enqueues: the seconds of the latter."""
    return asyncio.run(_fill(n))


async def _fill(n: int) -> float:
    connection = await asyncpg.connect()
    try:
        queries = Queries(AsyncpgDriver(connection))
        await queries.clear_queue()
        await queries.clear_queue_log()
        await queries.clear_statistics_log()
        began = time.perf_counter()
        await queries.enqueue(["noop"] * n, [b"%d" % i for i in range(n)], [0] * n)
        return time.perf_counter() - began
    finally:
        await connection.close()


if __name__ == "__main__":
    uvloop.run(run(worker, batch_size=BATCH))
