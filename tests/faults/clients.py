"""Many HTTP clients in one process, each asking again as soon as it has its answer; cheap, so that the server is
what is measured.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Ask:
    """`kind` is what its answers are counted as."""

    kind: str
    method: str
    path: str
    body: Any = None


@dataclass(slots=True)
class Answers:
    """Seconds by kind, in the order they came; and what was no success."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def percentile(self, kind: str, share: float) -> float:
        ordered = sorted(self.seconds[kind])
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    def total(self) -> int:
        return sum(len(taken) for taken in self.seconds.values())


def ask_for(url: str, token: str, seconds: float, clients: int, asks: Callable[[int], Iterator[Ask]]) -> Answers:
    """So many clients for so long; `asks(n)` is what the n-th asks, one after the other."""
    answers = Answers()

    async def all_of_them() -> None:
        until = time.monotonic() + seconds
        await asyncio.gather(*(_client(url, token, until, asks(n), answers) for n in range(clients)))

    asyncio.run(all_of_them())
    return answers


async def _client(url: str, token: str, until: float, asks: Iterator[Ask], answers: Answers) -> None:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    for ask in asks:
        if time.monotonic() > until:
            break
        began = time.monotonic()
        writer.write(_request(ask, token))
        status, body = await _answer(reader)
        answers.seconds.setdefault(ask.kind, []).append(time.monotonic() - began)
        if not 200 <= status < 300:
            answers.errors.append(f"{ask.method} {ask.path}: {status} {body[:200]!r}")
    writer.close()
    await writer.wait_closed()


def _request(ask: Ask, token: str) -> bytes:
    body = b"" if ask.body is None else json.dumps(ask.body).encode()
    head = (
        f"{ask.method} {ask.path} HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(int(line.partition(":")[2]) for line in head.splitlines() if line.startswith("content-length:"))
    return int(head.split(" ", 2)[1]), await reader.readexactly(length)
