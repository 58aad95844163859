"""The log's events: names by which programs recognise a line, whatever its sentence says.

What a transaction has done is logged, and counted, once it is committed: `after_commit`, `once_committed`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sqlalchemy import Connection

#: Each event, and when it is logged; `docs/observability.md` lists the fields.
EVENTS: Mapping[str, str] = {
    "task.claimed": "a run begins",
    "task.completed": "it succeeded, and that is committed",
    "task.retried": "it is tried again, or snoozes",
    "task.failed": "it failed for good",
    "task.cancelled": "it was cancelled",
    "task.log": "a handler writes to its own log",
    "task.rescued": "tasks were taken from a process that would not finish them",
    "task.handed_back": "a worker gave back unfinished tasks",
    "ticket.lost": "Redis lost tickets; their tasks are handed out anew",
    "ticket.refused": "a ticket arrived whose tasks another run had",
    "settle.refused": "a run ended after its task had been taken from it",
    "pass": "a pass claimed tasks; at DEBUG also one that claimed none",
    "worker.started": "a worker takes work",
    "worker.backing_off": "it takes nothing new, as memory, CPU or file descriptors are short",
    "worker.resumed": "it takes work again",
    "worker.draining": "it was told to stop and finishes its tasks",
    "worker.stopped": "it has stopped",
    "lock.held_up": "an open transaction or a slow statement holds a needed lock; at most every 10 s",
    "schedule.tick": "a schedule ran; at DEBUG also passes and sweeps",
    "log.dropped": "lines of this log could not be written; now they are again",
    "role.paused": "an operator paused a role",
    "role.resumed": "an operator resumed a role",
    "audit": "an operator changed something",
    "alert.began": "an alert fires",
    "alert.ended": "it is over",
    "request": "the API answered a request",
}

#: The key in a connection's `info` for what its transaction does once it is committed.
ACTS = "celeriac once committed"


def of(event: str, **fields: Any) -> dict[str, Any]:
    """Return the `extra` of a log line for this event."""
    return {"data": {"event": event, **fields}}


def after_commit(
    connection: Connection, logger: logging.Logger, level: int, message: str, *, event: str, **fields: Any
) -> None:
    """Log this once this transaction, one of the engine's own, is committed."""
    if logger.isEnabledFor(level):
        once_committed(connection, partial(logger.log, level, "%s", message, extra=of(event, **fields)))


def once_committed(connection: Connection, act: Callable[[], None]) -> None:
    """Call `act` once this transaction, one of the engine's own, is committed; never if it is rolled back."""
    connection.info.setdefault(ACTS, []).append(act)


def committed(connection: Connection) -> None:
    for act in connection.info.pop(ACTS, ()):
        act()
