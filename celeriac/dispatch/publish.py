"""Tickets as messages in Redis: a role, a few task ids and their token;
no arguments, and nothing that is not in SQL.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from kombu.messaging import Producer
from kombu.serialization import dumps
from redis.exceptions import ResponseError

from celeriac.counters import COUNTERS
from celeriac.dispatch.app import DispatchApp
from celeriac.dispatch.asking import FAILURES, RedisQuestions, in_brief
from celeriac.dispatch.keys import ticket_key
from celeriac.dispatch.window import SUSPECT
from celeriac.roles.rules import TICKET
from celeriac.store.forks import after_fork

logger = logging.getLogger(__name__)

#: Kombu's transport options: a hung Redis delays a publisher for these seconds, a dead one not at all.
SHORT_FUSE = {
    "max_retries": 0,
    "socket_timeout": 0.5,
    "socket_connect_timeout": 0.5,
    "health_check_interval": 0,
}

#: Seconds without a further attempt after Redis failed.
BREAK = 5.0

#: A role has one wake-up at a time, until a worker takes it up; if none does, another may follow after this
#: (milliseconds).
KICK_LASTS = 1000

MAX_ROWS = 500

#: Entries of a queue that are read at once.
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket's message; without a token it is a wake-up, and its receiver checks the role. A wake-up's `ids` may name
    the task it is about.
    """

    role: str
    queue: str
    ids: Sequence[int] = field(default=())
    token: str = ""


def rows_per_ticket(chunk: int | str, seconds_per_task: float | None, target: float, rows: int, slots: int) -> int:
    """Return how many rows share a ticket: about `target` seconds of work, and few enough that every consumer gets a
    ticket.

    Tasks that were never measured get a ticket each.
    """
    if isinstance(chunk, int):
        return chunk
    if seconds_per_task is None:
        return 1
    worth = int(target / max(seconds_per_task, 1e-6))
    spread = math.ceil(rows / max(slots, 1))
    return max(1, min(worth, spread, MAX_ROWS))


class Losable(Protocol):
    """A claimed task that knows how often it was lost."""

    @property
    def losses(self) -> int: ...


Lost = TypeVar("Lost", bound=Losable)


def split(taken: Sequence[Lost], size: int) -> list[list[Lost]]:
    """Split tasks into tickets. A task that was lost twice may be killing its processes, so it runs alone."""
    together = [task for task in taken if task.losses < SUSPECT]
    shared = [together[i : i + size] for i in range(0, len(together), size)]
    return shared + [[task] for task in taken if task.losses >= SUSPECT]


class Publisher:
    """Publishes wake-ups and tickets on a connection of its own that gives up quickly.

    An error of Redis is never raised. Thread-safe; after a fork it connects anew. After a failure it leaves Redis alone
    for `BREAK` seconds, and for ever if there is none (`has_redis`). `questions`: how Redis is, whatever became of the
    last publish.
    """

    #: True if a process may start ready tasks that it finds without a pass's ticket.
    lets_go_on = True

    def __init__(self, app: DispatchApp, *, has_redis: bool = True) -> None:
        self.app = app
        self.has_redis = has_redis
        self.questions = RedisQuestions(app.connection_for_write, has_redis=has_redis)
        self._remake_lock()
        after_fork(self._remake_lock)
        self._producer: Producer | None = None
        self._pid = 0
        self._closed_until = 0.0 if has_redis else math.inf

    def _remake_lock(self) -> None:
        """Make a new lock: the thread that may hold the old one does not exist in a forked child."""
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """False while the breaker keeps calls off Redis."""
        return time.monotonic() >= self._closed_until

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._lock:
            if self._producer is not None and self._pid == os.getpid():
                self._producer.connection.close()
            self._producer = None
        self.questions.close()

    def kick(self, role: str, queue: str, lone: int | None = None) -> bool:
        """Send a wake-up of the role, unless one is waiting already. `lone`: the id of its only task, if nothing else
        is in the queue.
        """
        sent: list[bool] = []
        is_taken = self._attempt(lambda producer: sent.append(self._kick(producer, role, queue, lone)))
        COUNTERS.count(1, "kicks_sent_total", "refused" if not is_taken else "sent" if sent[0] else "merged")
        return is_taken

    def take_up(self, role: str) -> None:
        """Take up the role's wake-up before a pass reads: a task that is enqueued from here on sends another."""
        self._attempt(lambda producer: _client(producer).delete(_kick_key(role)))

    def publish(self, tickets: Iterable[Ticket]) -> bool:
        """Publish all tickets in one pipelined batch. False: some or all may not have arrived."""
        return self._attempt(lambda producer: self._publish(producer, tickets))

    def broadcast(self, exchange: str, routing_key: str, message: Mapping[str, Any]) -> bool:
        """Send this message to all that listen to the exchange; return whether Redis took it."""
        return self._attempt(lambda producer: producer.channel._put_fanout(exchange, message, routing_key))

    def ask(self, question: Callable[[Any], Any]) -> Any:
        """Call `question` with a client of Redis and return its result; None if Redis refuses or does not answer."""
        answers: list[Any] = []

        def put(producer: Producer) -> None:
            with suppress(ResponseError):
                answers.append(question(_client(producer)))

        self._attempt(put)
        return answers[0] if answers else None

    def answers(self) -> bool:
        """Return whether Redis does, if only with an error, or there is none that could."""
        return not self.has_redis or self.questions.answers()

    def refusal(self) -> str:
        """Return the error with which Redis refuses wake-ups; empty if it takes them, does not answer or is none."""
        return self.questions.refusal(_kick_key("")) if self.has_redis else ""

    def queued(self, queue: str, wanted: Collection[str]) -> set[str] | None:
        """Return those of these tokens that are in the queue as tickets, or None if Redis does not answer.

        The queue is read page by page, and others may use the connection in between.
        """
        tokens: set[str] = set()
        if not self.has_redis:
            return tokens
        for start in count(step=PAGE):
            page = self.questions.ask(lambda channel: _page(channel, queue, start)).value  # noqa: B023
            if page is None:
                return None
            tokens |= tokens_in(page) & set(wanted)
            if len(page) < PAGE or len(tokens) == len(wanted):
                return tokens
        return tokens

    def _kick(self, producer: Producer, role: str, queue: str, lone: int | None) -> bool:
        """Send a wake-up; return False if one is under way already."""
        if lone is not None and self._put_first(producer, Ticket(role, queue, [lone])):
            return True
        if not _client(producer).set(_kick_key(role), 1, nx=True, px=KICK_LASTS):
            return False
        self._put(producer, Ticket(role, queue))
        return True

    def _publish(self, producer: Producer, tickets: Iterable[Ticket]) -> None:
        with producer.batch():
            for ticket in tickets:
                self._put(producer, ticket)

    def _put(self, producer: Producer, ticket: Ticket) -> None:
        message = self._message(ticket)
        producer.publish(
            message.body, exchange="", routing_key=ticket.queue, serializer="json", headers=message.headers,
            correlation_id=message.headers["id"],
        )  # fmt: skip

    def _put_first(self, producer: Producer, ticket: Ticket) -> bool:
        """Put the ticket into an empty queue, by the shortest way to Redis; return whether it was put there."""
        message = self._message(ticket)
        content_type, encoding, body = dumps(message.body, serializer="json")
        prepared = producer.channel.prepare_message(
            body, content_type=content_type, content_encoding=encoding, headers=message.headers,
            properties={"correlation_id": message.headers["id"], "delivery_mode": 2},
        )  # fmt: skip
        return bool(producer.channel.put_first(ticket.queue, prepared))

    def _message(self, ticket: Ticket) -> Any:
        ticket_id = str(uuid4())
        name = f"{ticket.role} ×{len(ticket.ids)}" if ticket.token else f"{ticket.role} kick"
        args = [ticket.role, list(ticket.ids), ticket.token]
        return self.app.amqp.as_task_v2(
            ticket_id, TICKET, args, {}, shadow=name, ignore_result=True, argsrepr=name, kwargsrepr=""
        )

    def _attempt(self, act: Any) -> bool:
        if not self.is_open:
            return False
        with self._lock:
            try:
                with self._connected() as producer:
                    act(producer)
            except FAILURES as error:
                self._closed_until = time.monotonic() + BREAK
                self._producer = None
                # The error of a batch says only that it failed; its cause has Redis' own error.
                why = error.__cause__ or error
                logger.warning("Redis did not take it, leaving it alone for %g s: %s", BREAK, in_brief(why))
                return False
        return True

    @contextmanager
    def _connected(self) -> Iterator[Producer]:
        if self._producer is None or self._pid != os.getpid():
            connection = self.app.connection_for_write(transport_options=SHORT_FUSE)
            producer = Producer(connection, auto_declare=False)
            producer.channel.carries_tickets = True
            self._producer, self._pid = producer, os.getpid()
        yield self._producer


def _client(producer: Producer) -> Any:
    return producer.channel.client


def _kick_key(role: str) -> str:
    return f"celeriac:kick:{role}"


def tokens_in(messages: Sequence[bytes]) -> set[str]:
    """Return the tokens in raw queue entries; an entry that is no ticket has none."""
    tokens: set[str] = set()
    for message in messages:
        try:
            body = json.loads(base64.b64decode(json.loads(message)["body"]))
            tokens.add(str(body[0][2]))
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            continue
    return tokens


def _page(channel: Any, queue: str, start: int) -> Sequence[bytes]:
    """Return a page, counted from the end where entries are taken, so that new ones, at the other end,
    shift nothing.
    """
    # kombu's client does not add the application's prefix to the key of this command.
    key = channel.global_keyprefix + ticket_key(queue)
    return list(channel.client.lrange(key, -start - PAGE, -start - 1))


class Probe:
    """A `celeriac.insights.Broker`, past the publisher's breaker.

    `republish_after` (seconds): a ticket that lies in no queue for so long counts as lost.
    """

    def __init__(self, publisher: Publisher, republish_after: float) -> None:
        self._publisher = publisher
        self._republish_after = republish_after

    @property
    def republish_after(self) -> float:
        return self._republish_after

    @property
    def has_redis(self) -> bool:
        return self._publisher.has_redis

    def answers(self) -> bool:
        return self._publisher.answers()

    def has(self, queue: str, token: str) -> bool | None:
        """Return whether this ticket is in its queue; None if Redis does not answer."""
        tokens = self._publisher.queued(queue, [token])
        return None if tokens is None else token in tokens

    def length(self, queue: str) -> int | None:
        """How many tickets and kicks lie there; None if Redis does not say."""
        length: int | None = self._publisher.questions.ask(lambda channel: channel.client.llen(ticket_key(queue))).value
        return length
