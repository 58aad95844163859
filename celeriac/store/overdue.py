"""Overdue: a thread ends enqueues that Postgres does not answer.

A frozen Postgres, or a network that swallows packets, holds a driver's call for half a minute or for ever, and no
setting of the driver's ends it. So a call notes in a dict when it began to wait at its connection, which costs next to
nothing, and one thread looks for those that have waited too long. It shuts their sockets, so that the calls raise.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from contextlib import suppress
from typing import Any

import psycopg2

from celeriac.errors import NoAnswer
from celeriac.store.forks import after_fork

#: Seconds between two checks of the thread (a tenth of the limit if that is less), and seconds that it stays without
#: work.
EVERY, IDLE = 0.5, 60.0


def shut(connection: Any) -> None:
    """Shut the socket of a driver's connection, so that a call blocked on it raises. It may be closed meanwhile."""
    with suppress(OSError, psycopg2.Error), socket.socket(fileno=os.dup(connection.fileno())) as held:
        held.shutdown(socket.SHUT_RDWR)


class Watch:
    """Ends every call noted in `begun` within `limit` seconds, unless Postgres has answered.

    `begun`: the driver's connections with a waiting call, and since when (monotonic). The caller that notes a
    connection also removes it, and calls `wake` if the thread is not `awake`.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._forget()
        after_fork(self._forget)

    def _forget(self) -> None:
        self.begun: dict[Any, float] = {}
        self.awake = False
        self._ended: weakref.WeakSet[Any] = weakref.WeakSet()
        self._guard = threading.Lock()
        self._over = threading.Event()

    def has_ended(self, connection: Any) -> bool:
        """Return whether this connection was shut for its time limit."""
        return connection in self._ended

    def begin(self, connection: Any) -> None:
        """Note that a call waits for Postgres' answer at this connection from now on."""
        self.begun[connection] = time.monotonic()
        if not self.awake:
            self.wake()

    def no_answer(self) -> NoAnswer:
        return NoAnswer(
            f"Postgres did not answer within {self.limit:g} s (CELERIAC_ENQUEUE_TIMEOUT_MS): whether the task was "
            "accepted is not known; one with a `task_id` of your own can be sent again, and is accepted once"
        )

    def wake(self) -> None:
        if not self._guard.acquire(blocking=False):
            return  # another thread is waking it, or this thread was when a signal handler interrupted it
        try:
            if not self.awake:
                self.awake, self._over = True, threading.Event()
                thread = threading.Thread(target=self._run, args=(self._over,), name="celeriac-overdue", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no thread can be started, so there is no time limit
                    self.awake = False
        finally:
            self._guard.release()

    def close(self) -> None:
        """End the thread. A connection noted later wakes another one."""
        with self._guard:
            self.awake = False
            self._over.set()

    def _run(self, over: threading.Event) -> None:
        seen = time.monotonic()
        while not over.wait(min(EVERY, self.limit / 10)):
            now = time.monotonic()
            if self.begun:
                seen = now
                self._end(now - self.limit)
            elif now - seen > IDLE:
                self.awake = False
                break
        if self.begun:  # a caller noted it while the thread was still awake; later callers wake another thread
            self.wake()

    def _end(self, before: float) -> None:
        for connection, began in self._items():
            if began < before and self.begun.get(connection) == began:
                self._ended.add(connection)
                shut(connection)

    def _items(self) -> list[tuple[Any, float]]:
        while True:
            with suppress(RuntimeError):  # another thread has noted one meanwhile
                return list(self.begun.items())
