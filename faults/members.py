"""The processes of the stack, and what restarts them: as an orchestrator does, whatever ended them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from faults.ledger import FELL, PAUSED, THAWED, Pen

ROOT = Path(__file__).parent.parent

#: How often the supervisor looks (seconds), and how long a process may take to end when it is told to.
LOOK_EVERY, PATIENCE = 0.1, 60.0


class Member:
    """A process of the stack, in a session of its own; started again as often as it ends."""

    def __init__(self, name: str, command: list[str], environ: Mapping[str, str], logs: Path) -> None:
        self.name, self.command = name, command
        self.environ = {**os.environ, **environ, "FAULTS_WHO": name}
        self.log = logs / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        #: Every process it ever was: what a killed parent left behind goes with the stack.
        self.pids: list[int] = []
        #: Whether its end is our doing.
        self.is_told = False

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *self.command], cwd=ROOT, env=self.environ, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self.pids.append(self.process.pid)
        self.is_told = False

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def children(self) -> list[int]:
        with suppress(psutil.NoSuchProcess):
            return [child.pid for child in psutil.Process(self.pid).children()]
        return []

    def printed(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def kill(self, *, whole: bool = True) -> None:
        """SIGKILL to its parent, and to its children as well."""
        self.is_told = True
        with suppress(ProcessLookupError):
            (os.killpg if whole else os.kill)(self.pid, signal.SIGKILL)

    def terminate(self, number: int = signal.SIGTERM, *, whole: bool = False) -> None:
        """It ends when it has put away what it does. `whole`: its children are told as well."""
        self.is_told = True
        with suppress(ProcessLookupError):
            (os.killpg if whole else os.kill)(self.pid, number)

    def end(self) -> None:
        """All it ever was, by force."""
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait()


class Fleet(threading.Thread):
    """The members, and their supervisor: an ended process is started again within a moment."""

    def __init__(self, members: list[Member], pen: Pen) -> None:
        super().__init__(name="supervisor", daemon=True)
        self.members, self.pen = members, pen
        self.over = threading.Event()
        self.lock = threading.Lock()

    def run(self) -> None:
        while not self.over.wait(LOOK_EVERY):
            with self.lock:
                for member in self.members:
                    if not member.is_running and not self.over.is_set():
                        self._restart(member)

    def _restart(self, member: Member) -> None:
        if not member.is_told:
            self.pen.write(FELL, member=member.name, said=member.printed()[-2000:])
        member.start()

    def of(self, kind: str) -> list[Member]:
        return [member for member in self.members if member.name.startswith(kind)]

    def add(self, member: Member) -> None:
        member.start()
        with self.lock:
            self.members.append(member)

    def remove(self, member: Member) -> None:
        with self.lock, suppress(ValueError):  # one that never joined
            self.members.remove(member)
        member.end()

    def close(self) -> None:
        self.over.set()
        if self.is_alive():
            self.join()
        for member in self.members:
            member.end()

    @contextmanager
    def joined(self, *members: Member) -> Iterator[None]:
        """More of them for a while."""
        try:
            for member in members:
                self.add(member)
            yield
        finally:
            for member in members:
                self.remove(member)

    @contextmanager
    def frozen(self, pids: list[int]) -> Iterator[None]:
        """`stopped`, and the ledger knows from when until when, as who is frozen cannot know what goes on."""
        for pid in pids:
            self.pen.write(PAUSED, frozen=pid)
        try:
            with stopped(pids):
                yield
        finally:
            for pid in pids:
                self.pen.write(THAWED, frozen=pid)


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """SIGSTOP, and SIGCONT whatever happens meanwhile."""
    try:
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class Unmet(Exception):
    """What a fault needs did not come: it was not the fault that it says it is."""


def must(condition: Callable[[], object], patience: float, what: str) -> None:
    """Returns once it came true. Raises Unmet, which names `what` was awaited."""
    if not until(condition, patience):
        raise Unmet(f"waited {patience:g} s in vain for {what}")


def until(condition: Callable[[], object], patience: float) -> bool:
    """Whether it came true in time."""
    give_up = time.monotonic() + patience
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.05)
    return True
