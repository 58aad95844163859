"""Remote control is whoever may write to Redis: what he may do in this worker.

Levels, each with those before it: `off`, `look` (ask), `act` (cancel, stop, resize: what a restart or an enqueue takes
back), `store` (limits of roles, which stay).
"""

from __future__ import annotations

from celery.worker.control import Panel

from celeriac.settings import ACT, LOOK, REMOTE, STORE

#: Commands that change no worker, though Celery counts them among those that do: for whoever listens to events.
_LISTENING = frozenset({"enable_events", "disable_events", "heartbeat", "election"})

#: Those that set what stays.
_LASTING = frozenset({"rate_limit", "time_limit"})

#: Celery's other names of commands that ask.
_ALIASES = frozenset({"dump_schedule", "dump_reserved", "dump_active", "dump_conf", "dump_tasks", "dump_revoked"})


def level_of(command: str) -> str:
    """The least level that lets it. One of the application's own acts, unless it is declared as an inspect command."""
    if command in _LASTING:
        return STORE
    known = Panel.meta.get(command)
    asks = known is not None and known.type == "inspect" and command != "objgraph"  # which writes a file
    return LOOK if asks or command in _LISTENING | _ALIASES else ACT


def refused(command: str, level: str) -> str | None:
    """What is to be said of a command that is above this level."""
    needed = level_of(command)
    if REMOTE.index(needed) <= REMOTE.index(level):
        return None
    return f"{command}: refused, as CELERIAC_REMOTE_CONTROL={level} here; it needs {needed}"
