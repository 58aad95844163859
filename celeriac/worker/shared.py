"""What parent and children of one worker share."""

from __future__ import annotations

import mmap
import os
import socket

# Made before the pool forks: a byte both sides see. Threads and solo pools share it trivially.
_flags = mmap.mmap(-1, 1)
_worker_id = f"{socket.gethostname()}:{os.getpid()}"


def worker_id() -> str:
    """This worker's name in SQL; unique to the process, so that a restart is another worker."""
    return _worker_id


def name_worker(name: str) -> None:
    global _worker_id
    _worker_id = name


def draining() -> bool:
    """Whether the worker stops: nothing new may begin."""
    return _flags[0] == 1


def drain(on: bool = True) -> None:
    _flags[0] = int(on)
