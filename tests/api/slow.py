"""Clients that never send a whole request, each of which comes again when it is turned away: see `slow_clients`."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.processes import ROOT, Running, process, until

POST = b"POST /api/tasks HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n"

#: What one sends at once, and what it adds every second.
WAYS = ((b"", b""), (POST, b""), (POST, b"X-More: y\r\n"), (POST + b"\r\n{", b""), (POST + b"\r\n{", b" "))

#: How long (seconds) one that was turned away stays away, at least and at most.
AWAY = (1.0, 5.0)

ALL_OPENED = "all were connected"


@contextmanager
def slow_clients(port: int, many: int, log: Path) -> Iterator[Running]:
    """A process of so many, each of which has been connected once."""
    command = [sys.executable, "-m", "tests.api.slow", str(port), str(many)]
    with process(command, {"PYTHONPATH": str(ROOT)}, log) as running:
        until(lambda: ALL_OPENED in running.printed() or running.process.poll() is not None, ALL_OPENED)
        assert running.process.poll() is None, running.printed()[-3000:]
        yield running


async def _come_again_for_ever(port: int, way: tuple[bytes, bytes], opened: asyncio.Semaphore) -> None:
    first = True
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            if first:
                opened.release()
                first = False
            await _dawdle(reader, writer, *way)
            writer.transport.abort()
        await asyncio.sleep(random.uniform(*AWAY))


async def _dawdle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, at_once: bytes, more: bytes) -> None:
    """Until the server closes."""
    writer.write(at_once)
    turned_away = asyncio.ensure_future(reader.read())
    while not turned_away.done():
        await asyncio.wait([turned_away], timeout=1)
        writer.write(more)
    await turned_away


async def _main(port: int, many: int) -> None:
    opened = asyncio.Semaphore(0)
    ways = itertools.islice(itertools.cycle(WAYS), many)
    clients = [asyncio.ensure_future(_come_again_for_ever(port, way, opened)) for way in ways]
    for _ in clients:
        await opened.acquire()
    print(ALL_OPENED, flush=True)
    await asyncio.gather(*clients)


if __name__ == "__main__":
    os.nice(10)  # others' machines would pay for them
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(_main(*map(int, sys.argv[1:])))
