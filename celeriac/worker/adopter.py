"""The adopter, a thread of the parent: turns messages of plain Celery apps in Redis into tasks or dead letters.

A message moves from its queue to the list `celeriac:adopting:<queue>`, is written to Postgres, and is removed from the
list after the commit. If a worker is killed in between, any other adopter continues; a message that is written twice
becomes one task. So there are no leases, and nothing has to be recovered. A Redis that is out of memory can remove
messages but not move them: then a message is read from its queue.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from psycopg2.errors import LockNotAvailable
from redis import Redis
from redis.exceptions import OutOfMemoryError, ResponseError
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from celeriac.dispatch.asking import FAILURES, in_brief
from celeriac.dispatch.keys import adopting_key, is_adopted_from, plain_keys, quarantine
from celeriac.dispatch.publish import SHORT_FUSE
from celeriac.enqueue import adopted
from celeriac.enqueue.adopted import Letter
from celeriac.enqueue.foreign import judge, letter_of
from celeriac.enqueue.rows import NewTask
from celeriac.run.shared import closed
from celeriac.store.failures import is_gone
from celeriac.worker.app import WorkerApp

logger = logging.getLogger(__name__)

#: The list that has a message, and the message.
Taken = tuple[str, bytes]

#: Maximum number of messages, and approximate number of their bytes, that one transaction adopts: they are in memory.
BATCH, BATCH_BYTES = 50, 2**24

#: Seconds between two polls if no role adopts, and seconds of rest after an error.
SELDOM, REST = 1.0, 1.0

#: Seconds that the adopter waits for rows that an open transaction has locked.
PATIENCE = 1.0


class Adopter(threading.Thread):
    """Takes messages from the plain keys of `queues()`, and of the default queue if a role of this code adopts; until
    `ending`.
    """

    def __init__(self, app: WorkerApp, queues: Callable[[], set[str]], ending: threading.Event | None = None) -> None:
        super().__init__(name="celeriac-adopter", daemon=True)
        self.app = app
        self.queues = queues
        self.ending = ending or threading.Event()
        self.adopts = any(declared.role.adopt for declared in app.roles.all())
        self.connection: Any = None
        self.prefix = self.separator = ""
        self.last_warning = ""

    def run(self) -> None:
        """Adopt until the worker ends, if there is a Redis."""
        if not self.app.settings.has_redis:
            return
        while not self.ending.wait(self.attempt()):
            pass

    def attempt(self) -> float:
        """Poll once; return how long (seconds) to wait for the next poll."""
        try:
            more = not closed() and self.look()
        except FAILURES as error:
            self._disconnect()
            self._warn_once(f"Redis does not let plain Celery's messages be taken: {in_brief(error)}")
            return REST
        except Exception as error:
            self._warn_once(f"Plain Celery's messages wait: {error}", known=is_gone(error))
            return REST
        self.last_warning = ""
        return 0.0 if more else self.interval()

    def interval(self) -> float:
        usual = self.app.settings.adopt_interval
        return usual if usual and self.adopts else max(usual, SELDOM)

    def look(self) -> bool:
        """Take and adopt a batch of messages; return whether there may be more."""
        client, queues = self.client(), self.looked_at()
        keys = [key for queue, plain in queues.items() for key in (self._adopting(queue), *plain)]
        if not keys or not client.exists(*keys):
            return False
        left = self.take(client, queues)
        return self.adopt(client, [*(self._adopting(queue) for queue in queues), *left])

    # -- Redis -----------------------------------------------------------------------------------------------------

    def client(self) -> Any:
        if self.connection is None:
            self.connection = self.app.connection_for_write(transport_options=SHORT_FUSE)
        channel = self.connection.default_channel
        self.prefix, self.separator = channel.global_keyprefix, channel.sep
        return Redis(connection_pool=channel.pool)

    def _disconnect(self) -> None:
        connection, self.connection = self.connection, None
        with suppress(*FAILURES):
            if connection is not None:
                connection.close()

    def looked_at(self) -> dict[str, list[str]]:
        """Return the plain keys of each queue; no keys if adopting is switched off. The default queue may be a stock
        app's own, even if workers consume tickets of that name.
        """
        default = {self.app.conf.task_default_queue}
        queues = self.queues() | default if self.adopts else self.queues() - default
        takes = bool(self.app.settings.adopt_interval)
        return {
            queue: [self.prefix + key for key in plain_keys(queue, self.separator)] if takes else []
            for queue in sorted(queues)
            if is_adopted_from(queue)
        }

    def _adopting(self, queue: str) -> str:
        return self.prefix + adopting_key(queue)

    def _queue_of(self, key: str) -> str:
        """Return a message's queue, from the key that has it."""
        return key.removeprefix(self.prefix).removeprefix(adopting_key("")).partition(self.separator)[0]

    def take(self, client: Any, queues: Mapping[str, Sequence[str]]) -> list[str]:
        """Move a batch, divided among the keys, unless an earlier one is not adopted yet. Return the keys if Redis,
        out of memory, cannot move their messages.
        """
        if sum(self._lengths(client, [self._adopting(queue) for queue in queues], ours=True).values()) >= BATCH:
            return []
        to = {key: self._adopting(queue) for queue, plain in queues.items() for key in plain}
        full = self._lengths(client, list(to), ours=False)

        def move(key: str, first: int, last: int) -> list[Any]:
            return _answers(client, [("lmove", key, to[key], "RIGHT", "LEFT")] * (last - first))

        try:
            for key in full:
                _some(partial(move, key), len(full))
        except OutOfMemoryError:
            return list(full)
        return []

    def _lengths(self, client: Any, keys: Sequence[str], *, ours: bool) -> dict[str, int]:
        """Return the lengths of the non-empty lists. A key that is no list is quarantined if it is ours."""
        lengths = dict(zip(keys, _answers(client, [("llen", key) for key in keys]), strict=True))
        if ours:
            quarantine(client, {key: "list" for key, length in lengths.items() if length is None})
        return {key: length for key, length in lengths.items() if length}

    def taken(self, client: Any, keys: Sequence[str]) -> list[Taken]:
        """Read a batch of messages, the oldest first."""

        def read(key: str, first: int, last: int) -> list[Any]:
            return list(client.lrange(key, -last, -first - 1)[::-1])

        full = self._lengths(client, keys, ours=False)
        return [(key, payload) for key in full for payload in _some(partial(read, key), len(full))]

    def forget(self, client: Any, taken: Sequence[Taken]) -> None:
        """Remove messages by value, each as often as it was written; messages that have arrived meanwhile stay."""
        with client.pipeline(transaction=False) as pipe:
            for key, payload in taken:
                pipe.lrem(key, -1, payload)
            pipe.execute()

    # -- Postgres --------------------------------------------------------------------------------------------------

    def adopt(self, client: Any, keys: Sequence[str]) -> bool:
        """Adopt the oldest messages, unless another worker is adopting; return whether there may be more."""
        taken: list[Taken] = []
        try:
            with self.app.database.transaction(patience=PATIENCE) as connection:
                if not adopted.has_turn(connection):
                    return False
                taken = self.taken(client, keys)
                roles = self._write(connection, taken)
            done = taken
        except DBAPIError as error:
            if not _of_one(error):
                raise
            done, roles = self._one_by_one(taken)
        self.forget(client, done)
        self.app.kick(roles)
        return bool(done)

    def _one_by_one(self, taken: Sequence[Taken]) -> tuple[list[Taken], set[str]]:
        """Adopt messages one by one. A message that Postgres refuses becomes a dead letter; one that waits for another
        transaction's lock stays for the next poll.
        """
        done, roles = [], set()
        for key, payload in taken:
            try:
                with self.app.database.transaction(patience=PATIENCE) as connection:
                    roles |= self._write(connection, [(key, payload)])
            except DBAPIError as error:
                if not _of_one(error):
                    raise
                if isinstance(error.orig, LockNotAvailable):
                    continue
                with self.app.database.transaction() as connection:
                    adopted.bury(connection, [letter_of(payload, f"Postgres refused it: {error.orig}")])
            done.append((key, payload))
        return done, roles

    def _write(self, connection: Any, taken: Sequence[Taken]) -> set[str]:
        """Write these messages and return the lanes of the new tasks."""
        limit = self.app.settings.max_argument_bytes
        named, priorities = self.app.role_between_releases, self.app.roles.priorities
        judged = [judge(payload, named, limit, priorities, self._queue_of(key)) for key, payload in taken]
        letters = [item for item in judged if isinstance(item, Letter)]
        adopted.bury(connection, letters)
        for letter in letters[:1]:
            logger.warning("%d dead letter(s), one of %s: %s", len(letters), letter.name or "nobody", letter.reason)
        return adopted.adopt(connection, [item for item in judged if isinstance(item, NewTask)])

    def _warn_once(self, what: str, *, known: bool = True) -> None:
        """Log each reason once, until adopting works again."""
        if what != self.last_warning:
            logger.log(logging.WARNING if known else logging.ERROR, "%s", what, exc_info=not known)
        self.last_warning = what


def _of_one(error: DBAPIError) -> bool:
    """Return whether a message caused the error, not Postgres."""
    return isinstance(error, DataError | IntegrityError) or isinstance(error.orig, LockNotAvailable)


def _some(page: Callable[[int, int], list[Any]], keys: int) -> list[Any]:
    """Return one key's share of a batch that `keys` keys share; `page(first, last)` returns some of its messages.

    A message's size is known only once it is read: pages grow as long as the messages so far are small.
    """
    share, most_bytes = max(1, BATCH // keys), BATCH_BYTES // keys
    messages: list[Any] = []
    while len(messages) < share and sum(map(len, messages)) < most_bytes:
        wanted = min(share, 2 * len(messages) or 1)
        some = [one for one in page(len(messages), wanted) if one is not None]
        messages += some
        if len(messages) < wanted:
            break
    return messages


def _answers(client: Any, commands: Sequence[tuple[str, ...]]) -> list[int | None]:
    """Send all commands in one round trip and return the answers; None where a key is no list."""
    with client.pipeline(transaction=False) as pipe:
        for command, *arguments in commands:
            getattr(pipe, command)(*arguments)
        answers = pipe.execute(raise_on_error=False)
    for answer in answers:
        if isinstance(answer, Exception) and not _is_no_list(answer):
            raise answer
    return [None if isinstance(answer, Exception) else answer for answer in answers]


def _is_no_list(error: Exception) -> bool:
    return isinstance(error, ResponseError) and "WRONGTYPE" in str(error)
