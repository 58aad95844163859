"""What parent and children of one worker share."""

from __future__ import annotations

import mmap
import os
import secrets
import socket

# Made before the pool forks: bytes both sides see. Threads and solo pools share them trivially.
_flags = mmap.mmap(-1, 3)
_DRAINING, _BACKING_OFF, _OVERDUE = range(3)


def fresh_name(hostname: str) -> str:
    """A worker's name in SQL, unique to the process: a container's next one has the same host name and number."""
    return f"{hostname}:{os.getpid()}:{secrets.token_hex(3)}"


_worker_id = fresh_name(socket.gethostname())


def worker_id() -> str:
    return _worker_id


def name_worker(name: str) -> None:
    global _worker_id
    _worker_id = name


def closed() -> bool:
    """Whether nothing new may begin: the worker stops or backs off."""
    return draining() or backing_off()


def draining() -> bool:
    return _flags[_DRAINING] == 1


def drain(on: bool = True) -> None:
    _flags[_DRAINING] = int(on)


def backing_off() -> bool:
    return _flags[_BACKING_OFF] == 1


def back_off(on: bool = True) -> None:
    _flags[_BACKING_OFF] = int(on)


def overdue() -> bool:
    """Whether a child says that what it runs is past its hard limit."""
    return _flags[_OVERDUE] == 1


def say_overdue(on: bool = True) -> None:
    _flags[_OVERDUE] = int(on)
