"""The Redis transport, which malformed input and error replies cannot end.

A stock consumer ends with "Unrecoverable error" on several kinds of malformed message, so anybody who can LPUSH or
PUBLISH could crash-loop the fleet. Here a message that is not a ticket is set aside and counted before a consumer sees
it, and the adopter checks what it is. A broadcast (remote control, events) that breaks its reader is dropped, and the
worker goes on.

A stock consumer also ends on most error replies of Redis. Here an error reply counts as a lost connection, and a
reconnection succeeds only if Redis takes writes. A key of the wrong type is quarantined.
"""

from __future__ import annotations

import inspect
import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from queue import Empty
from typing import Any, TypeVar

from kombu.transport import redis as stock
from kombu.transport import virtual
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps
from redis import Redis
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection
from redis.exceptions import InvalidResponse, NoPermissionError, OutOfMemoryError, ResponseError
from redis.retry import Retry

from celeriac.counters import COUNTERS
from celeriac.dispatch.asking import in_brief
from celeriac.dispatch.keys import adopting_key, quarantine, queue_of, ticket_key
from celeriac.roles.rules import TICKET
from celeriac.seam.control import PURGE, PurgeRefused
from celeriac.seam.envelope import NotATicket, check_message, check_reply, check_ticket

logger = logging.getLogger(__name__)

T = TypeVar("T")


#: Seconds between two log lines about a full Redis, which each queue of each connection meets.
TELL_FULL_EVERY = 60.0

#: The names of queues with replies to remote control; a starting worker, too, requests the others' clocks.
REPLIES = re.compile(r"\.reply\.[^.]*\.pidbox$")


#: The script of `Channel.put_first`, which checks and pushes in one step in Redis.
PUT_FIRST = """
if redis.call('LLEN', KEYS[1]) > 0 then return 0 end
return redis.call('LPUSH', KEYS[1], ARGV[1])
"""


def _unsaid() -> dict[str, Any]:
    """Return options that keep redis-py from introducing itself to Redis.

    It would send its name and subscribe to notices of maintenance: three round trips for each connection.
    """
    known = inspect.signature(AbstractConnection.__init__).parameters
    names = {"driver_info": None} if "driver_info" in known else {"lib_name": None, "lib_version": None}
    try:
        from redis.maint_notifications import MaintNotificationsConfig
    except ImportError:
        return names
    return names | {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}


UNSAID = _unsaid()


class QoS(virtual.QoS):
    """Unacknowledged tickets. Those that cannot be put back are not dumped to a file: they are issued again."""

    def restore_unacked(self) -> list[Any]:
        if lost := super().restore_unacked():
            why = in_brief(lost[0][0])
            logger.warning("%d tickets could not be put back (%s) and will be handed out anew", len(lost), why)
        return []


class Channel(stock.Channel):
    """A channel that checks queued messages before delivery, and goes on after any broadcast or key of a wrong type."""

    dropped = 0
    told_full = -math.inf

    #: True if this channel reads tickets from task queues; False on channels of users' own consumers and producers.
    carries_tickets = False

    #: Bindings collected while several queues are declared together, else None.
    declared: list[tuple[str, str, str, str]] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.QoS = QoS  # type: ignore[assignment]

    def _brpop_read(self, **options: Any) -> bool:
        inner = self.client.parse_response

        def checked(connection: Any, command: str, **more: Any) -> Any:
            reply = inner(connection, command, **more)
            if not reply:
                return None
            queue, payload = queue_of(bytes_to_str(reply[0])), reply[1]
            return [queue, payload] if self._admits(queue, payload) else None

        # The stock method reads, decodes and delivers in one go; its only seam is the client's parse_response.
        self.client.parse_response = checked
        try:
            return bool(super()._brpop_read(**options))
        except self.connection_errors as error:
            if self._closing or self._mended(error, self._lists(self.active_queues)):
                raise Empty from None
            raise
        finally:
            self.client.__dict__.pop("parse_response", None)

    def put_first(self, queue: str, message: dict[str, Any]) -> bool:
        """Put the message into the queue if that is empty, in one round trip; return whether it did.

        False if Redis denies scripts.
        """
        self._inplace_augment_message(message, "", queue)
        put = self.client.register_script(PUT_FIRST)
        try:
            return bool(put(keys=[self._q_for_pri(queue, 0)], args=[dumps(message)]))
        except NoPermissionError:
            return False

    def _do_restore_message(self, payload: Any, *args: Any, **kwargs: Any) -> None:
        """Put an unacknowledged message back on its kind of list: channels share the set of unacknowledged ones."""
        before, self.carries_tickets = self.carries_tickets, (payload.get("headers") or {}).get("task") == TICKET
        try:
            super()._do_restore_message(payload, *args, **kwargs)
        finally:
            self.carries_tickets = before

    def _q_for_pri(self, queue: str, pri: int) -> str:
        return str(super()._q_for_pri(ticket_key(queue) if self.carries_tickets else queue, pri))

    def _admits(self, queue: str, payload: bytes) -> bool:
        is_reply = REPLIES.search(queue)
        check = check_reply if is_reply else check_ticket if self.carries_tickets else check_message
        try:
            check(payload)
        except NotATicket as why:
            if check is check_ticket:
                COUNTERS.count(1, "messages_set_aside_total")
                self._set_aside(queue, payload, why)
            else:
                self._drop(f"on {queue!r} that is no {'answer' if is_reply else 'message'}", why)
            return False
        return True

    def _set_aside(self, queue: str, payload: bytes, why: NotATicket) -> None:
        """Move the message to the adopter, which makes it a task or a dead letter with the reason."""
        try:
            Redis(connection_pool=self.pool).lpush(self.global_keyprefix + adopting_key(queue), payload)
        except self.connection_errors as error:
            self._drop(f"on {queue!r} that is no ticket ({why}) and cannot be set aside", error)
        else:
            logger.error("Set a message on %r aside that is no ticket: %s", queue, why)

    def _receive_one(self, c: Any) -> Any:
        try:
            return super()._receive_one(c)
        except (Empty, *self.connection_errors):
            raise
        except Exception as why:
            self._drop("that was broadcast", why)
            return None

    def queue_purge(self, *_: Any, **__: Any) -> int:
        """Raise PurgeRefused, also for `celery purge`, which calls the connection."""
        raise PurgeRefused(PURGE)

    def demand_writes(self) -> None:
        """Raise ResponseError unless Redis takes writes; tested by a write that needs no memory."""
        self._create_client().delete("celeriac:probe")

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        return super()._connparams(asynchronous) | UNSAID

    @contextmanager
    def declaring(self) -> Iterator[None]:
        """Declare all queues of the block in one round trip, without reading their lengths."""
        declared: list[tuple[str, str, str, str]] = []
        self.declared = declared
        try:
            yield
        finally:
            self.declared = None
        if declared:
            self._bind(declared)

    def _bind(self, declared: list[tuple[str, str, str, str]]) -> None:
        """Bind the queues together; if Redis refuses, one after the other."""
        try:
            with self.conn_or_acquire() as client, client.pipeline(transaction=False) as pipe:
                for exchange, routing_key, pattern, queue in declared:
                    member = self.sep.join([routing_key or "", pattern or "", queue or ""])
                    pipe.sadd(self.keyprefix_queue % (exchange,), member)
                    pipe.sadd(self.keyprefix_binding_permanent % (exchange,), member)
                pipe.execute()
        except ResponseError:
            for one in declared:
                self._queue_bind(*one)

    def _size(self, queue: str) -> int:
        if self.declared is not None:
            return 0
        size = super()._size
        return self._past_wrong_types(lambda: int(size(queue)), self._lists([queue]))

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        """Bind the queue. A full Redis may refuse to store it: no ticket is sent through an exchange."""
        if self.declared is not None and self.typeof(exchange).type == "direct" and queue not in self._expires:
            self.declared.append((exchange, routing_key, pattern, queue))
            return
        bind = super()._queue_bind
        keys = {
            self.keyprefix_queue % exchange: "set",
            self.keyprefix_binding_permanent % exchange: "set",
            self.keyprefix_binding_deadlines: "zset",
        }
        try:
            self._past_wrong_types(lambda: bind(exchange, routing_key, pattern, queue), keys)
        except OutOfMemoryError as error:
            if time.monotonic() - Channel.told_full > TELL_FULL_EVERY:
                logger.warning("Redis has no room to list the queues, whose tickets are taken all the same: %s", error)
                Channel.told_full = time.monotonic()

    def _delete(self, *args: Any, **kwargs: Any) -> None:
        """Delete a queue; while the channel closes, errors of Redis are ignored."""
        try:
            super()._delete(*args, **kwargs)
        except self.connection_errors:
            if not self._closing:
                raise

    def _lists(self, queues: Iterable[str]) -> dict[str, str]:
        return {self._q_for_pri(queue, step): "list" for queue in queues for step in self.priority_steps}

    def _past_wrong_types(self, act: Callable[[], T], kinds: Mapping[str, str]) -> T:
        try:
            return act()
        except ResponseError as error:
            if not self._mended(error, kinds):
                raise
            return act()

    def _mended(self, error: Exception, kinds: Mapping[str, str]) -> bool:
        """Quarantine the key that caused the error, if there is one; return whether there was.

        Redis does not name the key in its error, so the keys' types are compared with the expected `kinds`.
        """
        if "WRONGTYPE" not in str(error):
            return False
        # The channel's own clients prefix the keys of some commands.
        return quarantine(
            Redis(connection_pool=self.pool), {self.global_keyprefix + key: kind for key, kind in kinds.items()}
        )

    def _drop(self, what: str, why: Exception) -> None:
        Channel.dropped += 1
        logger.error("Dropped a message %s (%s: %s); %d so far", what, type(why).__name__, why, Channel.dropped)


class Transport(stock.Transport):
    """The transport of `redis://`, with the checking channel. An error reply counts as a lost connection."""

    Channel = Channel
    connection_errors = (*stock.Transport.connection_errors, InvalidResponse, ResponseError)

    def establish_connection(self) -> Any:
        """Connect. Raises ResponseError for a Redis that takes no writes: a replica, or one that cannot save."""
        try:
            connection = super().establish_connection()
            self._avail_channels[-1].demand_writes()
        except self.connection_errors:
            self.close_connection(self)
            del self._used_channel_ids[:]  # a channel that fails as it is made keeps its own id in use
            raise
        return connection


class SentinelChannel(Channel, stock.SentinelChannel):
    """The same channel, connected to the master that the Sentinels name. A dead Sentinel is tried only once."""

    sentinel_kwargs: Mapping[str, Any] = {}

    def _get_pool(self, asynchronous: bool = False) -> Any:
        self.sentinel_kwargs = {**self.sentinel_kwargs, "retry": Retry(NoBackoff(), 0)}
        return super()._get_pool(asynchronous)


class SentinelTransport(Transport, stock.SentinelTransport):
    """The transport of `sentinel://`. A former master refuses the test write; then the Sentinels are queried again."""

    Channel = SentinelChannel
