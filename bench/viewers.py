"""`python -m bench.viewers`: what open pages cost the server that they ask whether anything has changed.

`BENCH_VIEWERS` (50) of one page each, beside `BENCH_ROWS` tasks (1,000,000), for `BENCH_SECONDS` (30): each asks every
2 s over a connection of its own, as `live.js` does, while a task of the list changes every second. They have asked for
a while before they are measured. What one weighs is what the server grows by as twice as many ask: its threads, and
what it keeps of a page, are there by then.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from urllib.parse import urlsplit

import psutil
from sqlalchemy import text

from bench.api_load import serving
from bench.pages import ROWS, filled, session_of
from bench.size import sized
from celeriac.store.connections import Database
from celeriac.store.migrate import migrate
from tasks import app as example

VIEWERS = int(os.environ.get("BENCH_VIEWERS", sized(50, 5)))
SECONDS = float(os.environ.get("BENCH_SECONDS", sized(30, 3)))

#: How often (seconds) a page asks, and what all of them together may cost: of a processor, and bytes for each.
EVERY, CORES, BYTES = 2.0, 0.15, 100_000

#: How long (seconds) they ask before it is measured, and twice as many afterwards.
BESIDE = float(sized(20, 1))

PAGES = ("overview", "tasks", "roles/build")

CHANGE = "UPDATE celeriac.worker_tasks SET priority = :priority WHERE id = (SELECT max(id) FROM celeriac.tasks)"


def main() -> None:
    with ExitStack() as life:
        app, token = life.enter_context(filled())
        session = session_of(app, token)
        migrate(app.database.engine, example.migrations)
        api, pid = life.enter_context(serving(app.database_url, app.redis_url))
        server = psutil.Process(pid)
        for page in PAGES:
            url = f"{api.url}/admin/{page}"
            with changing(app.database):
                asyncio.run(watched(url, session, BESIDE))
                before, began = _busy(server), time.monotonic()
                answers = asyncio.run(watched(url, session, SECONDS))
                took = time.monotonic() - began
                cores, weight = (_busy(server) - before) / took, server.memory_info().rss
                asyncio.run(watched(url, session, BESIDE, 2 * VIEWERS))
                each = (server.memory_info().rss - weight) / VIEWERS
            over = " over" if cores > CORES or each > BYTES else ""
            told = ", ".join(f"{n / took:.1f}/s of {status}" for status, n in sorted(answers.items()))
            print(
                f"{page:12} {VIEWERS} viewers, {ROWS:,} tasks: {cores:.3f} of {CORES} of a processor,"
                f" {each / 1000:,.0f} of {BYTES / 1000:.0f} kB each; {told}{over}",
                flush=True,
            )


def _busy(server: psutil.Process) -> float:
    """Seconds of a processor."""
    times = server.cpu_times()
    return float(times.user + times.system)


@contextmanager
def changing(database: Database) -> Iterator[None]:
    """The newest task, once a second."""
    ended = Event()

    def change() -> None:
        n = 0
        while not ended.wait(1):
            n += 1
            with database.statement() as connection:
                connection.execute(text(CHANGE), {"priority": n % 90})

    thread = Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


async def watched(url: str, session: str, seconds: float, viewers: int = VIEWERS) -> Counter[int]:
    """How many answers of each status all of the viewers got."""
    until = time.monotonic() + seconds
    told: Counter[int] = Counter()
    async with asyncio.TaskGroup() as group:
        for n in range(viewers):
            group.create_task(_viewer(url, session, until, n * EVERY / viewers, told))
    return told


async def _viewer(url: str, session: str, until: float, late: float, told: Counter[int]) -> None:
    address, tag = urlsplit(url), ""
    await asyncio.sleep(late)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    while time.monotonic() < until:
        head = f"GET {address.path} HTTP/1.1\r\nHost: viewer\r\nCookie: celeriac={session}\r\nLive: 1\r\n"
        also = f"Accept-Encoding: gzip\r\nIf-None-Match: {tag}\r\n\r\n"
        writer.write((head + also).encode())
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:-1])}
        if length := int(headers.get("content-length", 0)):
            await reader.readexactly(length)
        told[int(lines[0].split()[1])] += 1
        tag = headers.get("etag", tag)
        await asyncio.sleep(EVERY)
    writer.close()
    await writer.wait_closed()


if __name__ == "__main__":
    main()
