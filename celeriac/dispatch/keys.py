"""Which key of Redis is for what. Tickets have keys of their own, so plain Celery's messages never lie among them."""

from __future__ import annotations

import re

_TICKETS = "celeriac:tickets:"

#: Answers to remote control, and what kombu lists for mailboxes and events: no tickets, and nobody's tasks.
_REMOTE = re.compile(r"\.pidbox$|^celeryev(\.|$)")

#: Messages that were taken from a plain queue and are not in Postgres yet.
ADOPTING = "celeriac:adopting"

#: What kombu appends to a queue's name for the messages of each priority; a sender uses those of its own steps.
_PRIORITIES = ("", *(f"\x06\x16{priority}" for priority in range(1, 10)))


def ticket_key(queue: str) -> str:
    """The key of a queue's tickets."""
    return queue if _REMOTE.search(queue) else _TICKETS + queue


def queue_of(key: str) -> str:
    """The inverse of `ticket_key`."""
    return key.removeprefix(_TICKETS)


def plain_keys(queue: str) -> list[str]:
    """Where a plain Celery app puts its messages for a queue, the most urgent first; none if it has no tasks."""
    return [] if _REMOTE.search(queue) else [queue + suffix for suffix in _PRIORITIES]
