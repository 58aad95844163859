"""Which key of Redis is for what. Tickets have keys of their own, so plain Celery's messages never lie among them."""

from __future__ import annotations

import re

_TICKETS, _ADOPTING = "celeriac:tickets:", "celeriac:adopting:"

#: Answers to remote control, and what kombu lists for mailboxes and events: no tickets, and nobody's tasks.
_REMOTE = re.compile(r"\.pidbox$|^celeryev(\.|$)")

#: What kombu appends to a queue's name for the messages of each priority; a sender uses those of its own steps.
_PRIORITIES = ("", *(f"\x06\x16{priority}" for priority in range(1, 10)))


def ticket_key(queue: str) -> str:
    """The key of a queue's tickets."""
    return _TICKETS + queue if has_tasks(queue) else queue


def queue_of(key: str) -> str:
    """The inverse of `ticket_key`."""
    return key.removeprefix(_TICKETS)


def adopting_key(queue: str) -> str:
    """The key of messages that were taken from a plain queue and are not in Postgres yet.

    One a queue: another application on this Redis, with a Postgres of its own, has other queues.
    """
    return _ADOPTING + queue


def has_tasks(queue: str) -> bool:
    """Whether a plain Celery app's messages for tasks may lie there."""
    return not _REMOTE.search(queue)


def plain_keys(queue: str) -> list[str]:
    """Where a plain Celery app puts its messages for a queue, the most urgent first."""
    return [queue + suffix for suffix in _PRIORITIES]
