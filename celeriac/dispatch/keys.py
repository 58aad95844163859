"""Names of the keys in Redis. Tickets have keys of their own, so that plain Celery's messages never lie among them."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from itertools import count
from typing import Any

from kombu.utils.encoding import bytes_to_str

from celeriac.roles.rules import OURS

logger = logging.getLogger(__name__)

_TICKETS, _ADOPTING = f"{OURS}tickets:", f"{OURS}adopting:"

#: Queues for replies to remote control, and kombu's bindings for mailboxes and events: no tickets or tasks in them.
_REMOTE = re.compile(r"\.pidbox$|^celeryev(\.|$)")


def ticket_key(queue: str) -> str:
    """Return the key of a queue's tickets."""
    return _TICKETS + queue if has_tasks(queue) else queue


def queue_of(key: str) -> str:
    """Return the queue of a key: the inverse of `ticket_key`."""
    return key.removeprefix(_TICKETS)


def adopting_key(queue: str) -> str:
    """Return the key of messages that were taken from a plain queue and are not in Postgres yet.

    There is one for each queue, because another application on this Redis, with a Postgres of its own,
    has other queues (the default one too).
    """
    return _ADOPTING + queue


def has_tasks(queue: str) -> bool:
    """Return whether a plain Celery app may put messages for tasks there."""
    return not _REMOTE.search(queue)


def is_adopted_from(queue: str) -> bool:
    """Return whether plain messages may be taken from this queue; False for the engine's own keys, which `celery -Q`
    may name.
    """
    return has_tasks(queue) and not queue.startswith(OURS)


def plain_keys(queue: str, separator: str = "\x06\x16") -> list[str]:
    """Return the keys of a plain Celery app for a queue, most urgent first; an app uses some of the steps from 0 to 9.

    `separator`: kombu's `sep`, which a transport option can change.
    """
    return [queue, *(f"{queue}{separator}{priority}" for priority in range(1, 10))]


def quarantine(client: Any, kinds: Mapping[str, str]) -> bool:
    """Rename each key that has another type than it should (`list`, `set`, `zset`), so that work goes on; return
    whether there was one.
    """
    renamed = [_renamed(client, key, kind) for key, kind in kinds.items()]
    return any(renamed)


def _renamed(client: Any, key: str, kind: str) -> bool:
    names = (f"celeriac:quarantine:{key}:{n}" for n in count(1))
    name = next(name for name in names if not client.exists(name))

    def rename(pipe: Any) -> str | None:
        actual = bytes_to_str(pipe.type(key))
        pipe.multi()
        if actual in (kind, "none"):
            return None
        pipe.renamenx(key, name)
        return actual

    # The key is watched: once another worker has renamed it, it may be a queue again.
    actual = client.transaction(rename, key, value_from_callable=True)
    if actual is not None:
        logger.error("The Redis key %r was a %s, not a %s: it is called %r now", key, actual, kind, name)
    return actual is not None
