"""Processes as the system knows them, on Linux (/proc) and on macOS (ps)."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1


def follow_parent(farewell: signal.Signals) -> Callable[[], None] | None:
    """Return a `preexec_fn` by which Linux sends `farewell` to the child when the thread that started it ends."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, int(farewell))
        if os.getppid() != parent:
            os._exit(1)

    return ask


def is_alive(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return _state(pid) not in ("", "Z", "X")
    return False


def children_of(pid: int) -> list[int]:
    if sys.platform == "linux":
        with suppress(FileNotFoundError, ProcessLookupError):
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return []
    rows = (line.split() for line in _ps("-axo", "pid=,ppid=").splitlines())
    return [int(child) for child, parent in rows if int(parent) == pid]


def signal_family(pid: int, number: signal.Signals) -> None:
    """Signal a process and its children, the parent first, so that it makes no further ones."""
    for one in [pid, *children_of(pid)]:
        with suppress(ProcessLookupError):
            os.kill(one, number)


def kill_family(pid: int) -> None:
    signal_family(pid, signal.SIGSTOP)
    for one in [*children_of(pid), pid]:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def works_in(pid: int, folder: Path) -> bool:
    """Return whether the process is a server of `folder`, and not another one that reused its number."""
    if sys.platform == "linux":
        with suppress(OSError):
            return os.readlink(f"/proc/{pid}/cwd") == str(folder)
        return False
    return str(folder) in _ps("-p", str(pid), "-o", "command=")


def end(pid: int, farewell: signal.Signals, patience: float) -> None:
    """End a process that is not a child of this one: by `farewell`, after `patience` seconds by SIGKILL."""
    for number, seconds in ((farewell, patience), (signal.SIGKILL, 5.0)):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)
        if _is_gone_within(pid, seconds):
            return


def _is_gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _state(pid: int) -> str:
    if sys.platform == "linux":
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return _ps("-p", str(pid), "-o", "state=").strip()[:1]


def _ps(*arguments: str) -> str:
    return subprocess.run(["ps", *arguments], capture_output=True, text=True, check=False).stdout
