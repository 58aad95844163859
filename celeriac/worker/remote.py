"""Levels of remote control: whoever may write to Redis can send commands, and the level limits what these do here.

Each level includes those before it: `off`, `look` (read), `act` (cancel, stop, resize: a restart or an enqueue undoes
these), `store` (limits of roles, which stay).
"""

from __future__ import annotations

from celery.worker.control import Panel

from celeriac.settings import ACT, LOOK, REMOTE, STORE

#: Commands for listeners to events, which change no worker although Celery counts them as control commands.
_LISTENING = frozenset({"heartbeat"})

#: Commands that no level allows: the winner of an election calls any task that the command describes.
_REFUSED = frozenset({"election"})

#: Commands whose changes outlast the worker.
_LASTING = frozenset({"rate_limit", "time_limit"})

#: Celery's other names of commands that only read.
_ALIASES = frozenset({"dump_schedule", "dump_reserved", "dump_active", "dump_conf", "dump_tasks", "dump_revoked"})


def level_of(command: str) -> str:
    """Return the lowest level that allows the command; for an application's own one `act`, unless it only inspects."""
    if command in _LASTING:
        return STORE
    known = Panel.meta.get(command)
    reads = known is not None and known.type == "inspect" and command != "objgraph"  # objgraph writes a file
    return LOOK if reads or command in _LISTENING | _ALIASES else ACT


def refused(command: str, level: str) -> str | None:
    """Return the error reply to a command that this level does not allow; None if it does."""
    if command in _REFUSED:
        return f"{command}: refused at every level, as a worker would call any task for whoever writes to Redis"
    needed = level_of(command)
    if REMOTE.index(needed) <= REMOTE.index(level):
        return None
    return f"{command}: refused, as CELERIAC_REMOTE_CONTROL={level} here; it needs {needed}"
