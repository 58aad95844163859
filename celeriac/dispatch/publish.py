"""Tickets: what goes through Redis. A role, a few task ids and their token; no arguments, no truth."""

from __future__ import annotations

import base64
import json
import logging
import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kombu.exceptions import KombuError
from kombu.messaging import Producer

from celeriac.seam.transport import TICKET

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

#: A hung Redis may cost a publisher this long (seconds), a dead one nothing.
SHORT_FUSE = {
    "max_retries": 0,
    "socket_timeout": 0.5,
    "socket_connect_timeout": 0.5,
    "health_check_interval": 0,
}

#: After a failure Redis is left alone for this long (seconds).
BREAK = 5.0

#: A kick is one per role until a worker takes it up; if none does, another may follow after this (milliseconds).
KICK_LASTS = 1000

MAX_ROWS = 500

#: A row that was lost so often shares no ticket.
SUSPECT = 2


@dataclass(frozen=True, slots=True)
class Ticket:
    """Without a token: a kick. It asks whoever gets it to run the role's pass; `ids` may name what it is about."""

    role: str
    queue: str
    ids: Sequence[int] = field(default=())
    token: str = ""


def rows_per_ticket(chunk: int | str, seconds_per_task: float | None, target: float, rows: int, slots: int) -> int:
    """How many rows share a ticket: about `target` seconds of work, and no consumer idle for the sake of another.

    Tasks that were never measured get a ticket each.
    """
    if isinstance(chunk, int):
        return chunk
    if seconds_per_task is None:
        return 1
    worth = int(target / max(seconds_per_task, 1e-6))
    spread = math.ceil(rows / max(slots, 1))
    return max(1, min(worth, spread, MAX_ROWS))


def split(role: str, queue: str, losses: Mapping[int, int], token: str, size: int) -> list[Ticket]:
    """`losses`: by id, how often the row was lost. One lost twice may be what kills its processes: it runs alone."""
    together = [i for i, lost in losses.items() if lost < SUSPECT]
    batches = [together[i : i + size] for i in range(0, len(together), size)]
    batches += [[i] for i, lost in losses.items() if lost >= SUSPECT]
    return [Ticket(role, queue, ids, token) for ids in batches]


class Publisher:
    """Publishes kicks and tickets on a connection of its own that gives up quickly. Never raises for Redis' sake.

    Thread-safe; after a fork it connects anew. After a failure it stays off Redis for `BREAK` seconds.
    """

    def __init__(self, app: Celeriac) -> None:
        self.app = app
        self._remake_lock()
        os.register_at_fork(after_in_child=self._remake_lock)
        self._producer: Producer | None = None
        self._pid = 0
        self._closed_until = 0.0

    def _remake_lock(self) -> None:
        """A forked child has not the thread that may hold it."""
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """False while the breaker keeps Redis from being asked."""
        return time.monotonic() >= self._closed_until

    def close(self) -> None:
        """Closes its connection; the next call opens another."""
        with self._lock:
            if self._producer is not None and self._pid == os.getpid():
                self._producer.connection.close()
            self._producer = None

    def kick(self, role: str, queue: str, lone: int | None = None) -> bool:
        """Asks for a pass, unless one is asked for already. `lone`: the row it is about, if nothing else queues."""
        return self._attempt(lambda producer: self._kick(producer, role, queue, lone))

    def take_up(self, role: str) -> None:
        """Call it before a pass reads: a task enqueued from here on kicks again."""
        self._attempt(lambda producer: _client(producer).delete(_kick_key(role)))

    def publish(self, tickets: Iterable[Ticket]) -> bool:
        """All in one pipelined batch. False: some or all may not have arrived."""
        return self._attempt(lambda producer: self._publish(producer, tickets))

    def queued(self, queue: str) -> set[int] | None:
        """The task ids whose tickets lie in the queue, or None if Redis could not be asked."""
        found: set[int] = set()
        asked = self._attempt(lambda producer: found.update(ids_in(_client(producer).lrange(queue, 0, -1))))
        return found if asked else None

    def _kick(self, producer: Producer, role: str, queue: str, lone: int | None) -> None:
        if lone is not None and not _client(producer).llen(queue):
            self._put(producer, Ticket(role, queue, [lone]))
        elif _client(producer).set(_kick_key(role), 1, nx=True, px=KICK_LASTS):
            self._put(producer, Ticket(role, queue))

    def _publish(self, producer: Producer, tickets: Iterable[Ticket]) -> None:
        with producer.batch():
            for ticket in tickets:
                self._put(producer, ticket)

    def _put(self, producer: Producer, ticket: Ticket) -> None:
        from celery.utils import uuid

        ticket_id = uuid()
        name = f"{ticket.role} ×{len(ticket.ids)}" if ticket.token else f"{ticket.role} kick"
        args = [ticket.role, list(ticket.ids), ticket.token]
        message = self.app.amqp.as_task_v2(
            ticket_id, TICKET, args, {}, shadow=name, ignore_result=True, argsrepr=name, kwargsrepr=""
        )
        producer.publish(
            message.body, exchange="", routing_key=ticket.queue, serializer="json", headers=message.headers,
            correlation_id=ticket_id,
        )  # fmt: skip

    def _attempt(self, act: Any) -> bool:
        if not self.is_open:
            return False
        with self._lock:
            try:
                with self._connected() as producer:
                    act(producer)
            except _redis_failures() as error:
                self._closed_until = time.monotonic() + BREAK
                self._producer = None
                logger.warning("Redis is not reachable, leaving it alone for %g s: %s", BREAK, error)
                return False
        return True

    @contextmanager
    def _connected(self) -> Iterator[Producer]:
        if self._producer is None or self._pid != os.getpid():
            connection = self.app.connection_for_write(transport_options=SHORT_FUSE)
            self._producer, self._pid = Producer(connection, auto_declare=False), os.getpid()
        yield self._producer


def _client(producer: Producer) -> Any:
    return producer.channel.client


def _kick_key(role: str) -> str:
    return f"celeriac:kick:{role}"


def _redis_failures() -> tuple[type[Exception], ...]:
    from redis.exceptions import RedisError

    return (KombuError, RedisError, OSError)


def ids_in(messages: Sequence[bytes]) -> set[int]:
    """The task ids in raw queue entries; what is no ticket holds none."""
    found: set[int] = set()
    for message in messages:
        try:
            body = json.loads(base64.b64decode(json.loads(message)["body"]))
            found.update(body[0][1])
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            continue
    return found
