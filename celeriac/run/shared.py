"""Memory that the parent and the children of one worker share."""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from billiard.process import current_process

# The memory is made before the pool forks, so that both sides see the same bytes. Thread and solo pools have one
# process.
_flags = mmap.mmap(-1, 5)
_owner = os.getpid()
_DRAINING, _BACKING_OFF, _REPLACING_IDLE, _TELLING, _ALONE = range(5)

#: The flags of a worker that neither drains nor backs off.
_OPEN = bytes(2)

#: The time, on the machine's monotonic clock, when the parent last renewed the leases of the tasks that run here.
_renewed = mmap.mmap(-1, 8)

#: The version of the roles' limits that the parent saw last: one number, which is read before each task.
_as_of = memoryview(mmap.mmap(-1, 8)).cast("q")

# The entry for a task under a hard limit: the process, the task, and when (monotonic) the process has to be stopped.
_LIMIT = struct.Struct("qqd")
PROCESSES = 4096
_limits = mmap.mmap(-1, _LIMIT.size * PROCESSES)


def make_own() -> None:
    """Make memory for this worker alone, before it forks: a parent of several workers may have made one for all."""
    global _flags, _renewed, _as_of, _limits, _currents, _owner
    _owner = os.getpid()
    _flags, _renewed = mmap.mmap(-1, len(_flags)), mmap.mmap(-1, len(_renewed))
    _as_of = memoryview(mmap.mmap(-1, 8)).cast("q")
    _limits, _currents = mmap.mmap(-1, len(_limits)), mmap.mmap(-1, len(_currents))


def fresh_name(roles: Sequence[str] = ()) -> str:
    """Return a worker's name for SQL, such as worker-product_resync-a1b2c3d4:
    one that serves a single role has its name.
    """
    role = f"{roles[0]}-" if len(roles) == 1 else ""
    return f"worker-{role}{secrets.token_hex(4)}"


_worker_id = fresh_name()
_node = ""


def worker_id() -> str:
    return _worker_id


def name_worker(name: str) -> None:
    global _worker_id
    _worker_id = name


def node() -> str:
    """Return Celery's name for this worker; empty if it has none."""
    return _node


def name_node(name: str) -> None:
    global _node
    _node = name


def closed() -> bool:
    """Return whether nothing new may begin: the worker stops or backs off."""
    return _flags[: len(_OPEN)] != _OPEN


def draining() -> bool:
    return _flags[_DRAINING] == 1


def drain(on: bool = True) -> None:
    """Set or clear the draining flag, in the worker's own process only:
    a signal that reaches a child is about that child.
    """
    if os.getpid() == _owner:
        _flags[_DRAINING] = int(on)


def backing_off() -> bool:
    return _flags[_BACKING_OFF] == 1


def back_off(on: bool = True) -> None:
    _flags[_BACKING_OFF] = int(on)


def replacing_idle() -> bool:
    """Return whether a child that ran tasks and runs none should make room for a fresh one."""
    return _flags[_REPLACING_IDLE] == 1


def replace_idle(on: bool = True) -> None:
    _flags[_REPLACING_IDLE] = int(on)


def telling() -> bool:
    """Return whether somebody listens to Celery's events of tasks."""
    return _flags[_TELLING] == 1


def tell(on: bool = True) -> None:
    _flags[_TELLING] = int(on)


def alone() -> bool:
    """Return whether this worker gets no messages from Redis, so that work is found by polls alone."""
    return _flags[_ALONE] == 1


def be_alone(on: bool = True) -> None:
    _flags[_ALONE] = int(on)


def renewed() -> float:
    """Return when leases were last renewed (monotonic seconds); 0 before the first time."""
    return float(struct.unpack("d", _renewed[:8])[0])


def renew(when: float) -> None:
    _renewed[:8] = struct.pack("d", when)


def limits_as_of() -> int:
    """Return a number that changes with the limits of roles; 0 where nobody watches for changes."""
    return _as_of[0]


def note_limits(as_of: int) -> None:
    _as_of[0] = as_of


@dataclass(frozen=True, slots=True)
class HardLimit:
    """A process that has to be stopped at a time (monotonic), unless it has ended that task by then."""

    pid: int
    task: int
    ends: float


def limiting(number: int) -> Callable[[int, float], None]:
    """Return a function that shows the parent which task this slot runs and its hard deadline; 0, 0.0:
    none under a limit.

    The entry is this process's as long as it has the slot of that number.
    """
    at, pid = number % PROCESSES * _LIMIT.size, os.getpid()
    return partial(_LIMIT.pack_into, _limits, at, pid)


def limits(processes: Iterable[int]) -> list[HardLimit]:
    """Return the tasks that these processes run under a hard limit."""
    wanted = set(processes)
    written = (HardLimit(*place) for place in _LIMIT.iter_unpack(_limits) if place[0] in wanted)
    return [limit for limit in written if limit.ends > 0]


# The entry for what a place runs now: the process, the task, and since when, on the machine's monotonic clock.
_CURRENT = struct.Struct("qqd")
_currents = mmap.mmap(-1, _CURRENT.size * PROCESSES)


@dataclass(frozen=True, slots=True)
class Current:
    """The one task that a place runs; no other of its ticket has begun. `began`: seconds of the epoch."""

    pid: int
    task: int
    began: float


def noting(number: int) -> Callable[[int, float], None]:
    """Return a function that notes the task that begins in this place (0: none) and when (monotonic seconds), while the
    place has a ticket.
    """
    at, pid = number % PROCESSES * _CURRENT.size, os.getpid()
    return partial(_CURRENT.pack_into, _currents, at, pid)


#: In an asyncio pool, a function that returns the runs in this process, by task.
in_flight: Callable[[], dict[int, Current]] | None = None


def current(processes: Iterable[int]) -> dict[int, Current]:
    """Return what these processes run now, by task."""
    if in_flight is not None:
        return in_flight()
    wanted, epoch = set(processes), time.time() - time.monotonic()
    written = (place for place in _CURRENT.iter_unpack(_currents) if place[0] in wanted)
    return {task: Current(pid, task, epoch + began) for pid, task, began in written if task}


def place() -> int:
    """Return this process's number. A pool numbers its processes from 0 on, and one that shrank keeps high numbers."""
    return int(getattr(current_process(), "index", 0) or 0) % PROCESSES
