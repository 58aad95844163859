"""Levels of remote control: everybody who may write to Redis can send commands, and the level limits what they may do
here.

Each level includes those before it: `off`, `look` (read), `act` (cancel, stop, resize: a restart or an enqueue undoes
these), `store` (limits of roles, which stay).
"""

from __future__ import annotations

from celery.worker.control import Panel

from celeriac.settings import ACT, LOOK, REMOTE, STORE

#: A command for listeners to events, which changes no worker although Celery counts it among those that do.
_LISTENING = frozenset({"heartbeat"})

#: Commands that no level allows: whoever wins an election calls the task that is described in it, whichever it is.
_REFUSED = frozenset({"election"})

#: Commands whose changes stay.
_LASTING = frozenset({"rate_limit", "time_limit"})

#: Celery's other names of commands that only read.
_ALIASES = frozenset({"dump_schedule", "dump_reserved", "dump_active", "dump_conf", "dump_tasks", "dump_revoked"})


def level_of(command: str) -> str:
    """Return the lowest level that allows the command. An application's own command is `act`, unless it is declared as
    an inspect command.
    """
    if command in _LASTING:
        return STORE
    known = Panel.meta.get(command)
    asks = known is not None and known.type == "inspect" and command != "objgraph"  # objgraph writes a file
    return LOOK if asks or command in _LISTENING | _ALIASES else ACT


def refused(command: str, level: str) -> str | None:
    """Return the reply to a command that is above this level; None if it is allowed."""
    if command in _REFUSED:
        return f"{command}: refused at every level, as a worker would call any task for whoever writes to Redis"
    needed = level_of(command)
    if REMOTE.index(needed) <= REMOTE.index(level):
        return None
    return f"{command}: refused, as CELERIAC_REMOTE_CONTROL={level} here; it needs {needed}"
