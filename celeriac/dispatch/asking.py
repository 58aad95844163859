"""Questions to Redis about itself and what lies in it, asked past the publisher's breaker."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kombu.exceptions import KombuError
from redis.exceptions import RedisError, ResponseError

from celeriac.store.forks import after_fork

#: Kombu's transport options: how long (seconds) an answer is waited for.
PATIENT = {"max_retries": 0, "socket_timeout": 1.0, "socket_connect_timeout": 1.0, "health_check_interval": 0}

#: For so long (seconds) after a failure the answer is that there is none: a Redis that hangs keeps nobody for longer.
REST = 1.0

#: An answer that takes so much longer (seconds) than the way there and back is slow, and so is one that takes longer
#: than publishers wait.
SLOW_ANSWER, TOO_SLOW = 0.1, 0.5

#: Number of timed answers, and of entries read from Redis' log of slow commands.
PINGS, SLOW_COMMANDS = 3, 32

#: For so long (seconds) the least answer is remembered where the time to connect is not known: Redis may have moved.
REMEMBERED = 300.0

FAILURES: tuple[type[Exception], ...] = (KombuError, RedisError, OSError)


def in_brief(error: BaseException) -> str:
    """Return the error's text; of Sentinels without redis-py's listing of every client it tried."""
    return str(error).partition(" : <redis.")[0]


@dataclass(frozen=True, slots=True)
class RedisReply:
    """An answer of Redis. `refusal`: the error it answered with. Not `is_there`: it did not answer."""

    is_there: bool = False
    value: Any = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class AnswerTime:
    """The mean seconds of an answer now, and `least`, those of the way there and back."""

    seconds: float = 0.0
    least: float = 0.0

    @property
    def bound(self) -> float:
        """Return the seconds from which an answer is slow."""
        return min(self.least + SLOW_ANSWER, TOO_SLOW)


@dataclass(frozen=True, slots=True)
class SlowCommand:
    """A command that kept Redis busy for so many seconds; `client`: the address that sent it."""

    name: str
    seconds: float
    client: str


class RedisQuestions:
    """Asks Redis on a connection of its own, so that neither a failed publish nor a full Redis makes it seem away.

    Never raises for Redis' sake. Thread-safe; after a fork it connects anew.
    """

    def __init__(self, connect: Callable[..., Any], *, has_redis: bool = True) -> None:
        """`connect`: returns kombu's connection, as `connection_for_write` does. Not `has_redis`: none is asked."""
        self._connect = connect
        self._connection: Any = None
        self._pid = 0
        self._rests_until = 0.0 if has_redis else math.inf
        self._forget_way()
        self._remake_lock()
        after_fork(self._remake_lock)

    def _remake_lock(self) -> None:
        """Make a new lock: the thread that may hold the old one does not exist in a forked child."""
        self._lock = threading.Lock()

    def ask(self, question: Callable[[Any], Any]) -> RedisReply:
        """Call `question` with a channel to Redis and return what it said."""
        with self._lock:
            if time.monotonic() < self._rests_until:
                return RedisReply()
            try:
                return RedisReply(True, question(self._channel()))
            except FAILURES as error:
                # Kombu may have put its own around it.
                why = error if isinstance(error, ResponseError) else error.__cause__
                if isinstance(why, ResponseError):
                    return RedisReply(True, refusal=in_brief(why))
                self._close()
                self._rests_until = time.monotonic() + REST
                return RedisReply()

    def answers(self) -> bool:
        """Return whether Redis answers at all; an error is an answer."""
        return self.ask(lambda channel: channel.client.ping()).is_there

    def refusal(self, key: str) -> str:
        """Return the error with which Redis refuses to write this key for a moment; empty if it does not."""
        return self.ask(lambda channel: channel.client.set(key, 1, px=1)).refusal

    def memory(self) -> Mapping[str, Any] | None:
        """Return what Redis says of its memory; None if it does not say, or does not answer."""
        memory: Mapping[str, Any] | None = self.ask(lambda channel: channel.client.info("memory")).value
        return memory

    def memory_used(self) -> float:
        """Return the share of Redis' `maxmemory` in use; 0: no bound, keys are evicted, or it does not say."""
        memory = self.memory() or {}
        most = int(memory.get("maxmemory", 0))
        is_bound = most and memory.get("maxmemory_policy", "noeviction") == "noeviction"
        return int(memory["used_memory"]) / most if is_bound else 0.0

    def answer_time(self) -> AnswerTime:
        """Time `PINGS` answers. Where Redis does not answer, or only with errors, nothing is known.

        The time to connect, which a busy Redis has no part in, is the way there and back. It is measured whenever an
        answer may be slow, so neither a Redis that moved far away nor one that has always been slow is misjudged.
        """

        def timed(channel: Any) -> list[float]:
            took = []
            for _ in range(PINGS):
                began = time.monotonic()
                channel.client.ping()
                took.append(time.monotonic() - began)
            return took

        took = self.ask(timed).value
        if not took:
            return AnswerTime()
        mean, least = sum(took) / PINGS, min(took)
        connecting = self.ask(_connecting).value if mean > SLOW_ANSWER else None
        if connecting is not None:
            self._remember_way(min(least, connecting))
        elif least <= self._least or (time.monotonic() > self._least_until and mean <= self._least + SLOW_ANSWER):
            self._remember_way(least)
        return AnswerTime(mean, self._least)

    def _remember_way(self, seconds: float) -> None:
        self._least, self._least_until = seconds, time.monotonic() + REMEMBERED

    def _forget_way(self) -> None:
        self._remember_way(float("inf"))

    def slowest(self) -> SlowCommand | None:
        """Return the slowest command of Redis' own log of the last minute; None: there is none, or it may not be read,
        or this Redis has no such log.
        """

        def longest(channel: Any) -> SlowCommand | None:
            logged, now = channel.client.slowlog_get(SLOW_COMMANDS), channel.client.time()[0]
            recent = [one for one in logged if one["start_time"] >= now - 60]
            slow = max(recent, key=lambda one: one["duration"], default=None)
            return slow and SlowCommand(
                bytes(slow["command"]).partition(b" ")[0].decode("ascii", "replace"),
                slow["duration"] / 1e6, bytes(slow.get("client_address") or b"").decode("ascii", "replace"),
            )  # fmt: skip

        slow: SlowCommand | None = self.ask(longest).value
        return slow

    def close(self) -> None:
        """Close the connection; the next question opens another."""
        with self._lock:
            self._close()

    def _channel(self) -> Any:
        if self._connection is None or self._pid != os.getpid():
            self._connection, self._pid = self._connect(transport_options=PATIENT), os.getpid()
        return self._connection.default_channel

    def _close(self) -> None:
        if self._connection is not None and self._pid == os.getpid():
            with suppress(*FAILURES):
                self._connection.close()
        self._connection = None
        self._forget_way()


def _connecting(channel: Any) -> float | None:
    """Return how long (seconds) it takes to connect, which Redis itself has no part in; None if nobody knows where it
    is, as behind Sentinels, or nobody takes the connection.
    """
    place = channel.client.connection_pool.connection_kwargs
    if not place.get("host"):
        return None
    for family, kind, protocol, _, address in socket.getaddrinfo(
        place["host"], place.get("port"), type=socket.SOCK_STREAM
    ):
        with suppress(OSError), socket.socket(family, kind, protocol) as there:
            there.settimeout(PATIENT["socket_connect_timeout"])
            began = time.monotonic()
            there.connect(address)
            return time.monotonic() - began
    return None
