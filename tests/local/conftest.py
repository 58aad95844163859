"""Members are real processes, and the stack's processes are looked up in the system."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from celeriac.local import processes
from celeriac.local.server import first_number

ROOT = Path(__file__).resolve().parents[2]
JOIN_AND_WAIT = """
import sys
from pathlib import Path
from celeriac.local import join
stack = join(Path(sys.argv[1]))
print(stack.database_url, stack.redis_url, flush=True)
sys.stdin.read()
"""


class Member:
    """Another process that joins the stack and stays until it is told to leave, or is killed."""

    def __init__(self, data_dir: Path, program: str = JOIN_AND_WAIT) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(data_dir)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def says(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def leave(self, number: signal.Signals | None = None) -> None:
        if number is not None:
            self.process.send_signal(number)
        self.process.communicate(timeout=30)


class StackProcesses:
    """The guard, Postgres and Valkey of one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.lock = data_dir / "guard.lock"
        self.pid_files = [
            data_dir / "postgres" / "data" / "postmaster.pid",
            data_dir / "valkey" / "data" / "valkey.pid",
        ]

    @property
    def guard(self) -> int:
        pid = first_number(self.lock)
        assert pid is not None
        return pid

    @property
    def servers(self) -> list[int]:
        return [pid for file in self.pid_files if (pid := first_number(file)) is not None]

    def all(self) -> list[int]:
        mains = [pid for pid in [first_number(self.lock), *self.servers] if pid and processes.is_alive(pid)]
        return sorted({*mains, *(child for pid in mains for child in processes.children_of(pid))})


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "data"
    yield folder
    if (folder / "guard.lock").exists():
        left = StackProcesses(folder)
        assert eventually(lambda: not left.all()), f"still running: {left.all()}"


@pytest.fixture
def stack_processes(data_dir: Path) -> StackProcesses:
    return StackProcesses(data_dir)


@pytest.fixture
def enter(data_dir: Path) -> Iterator[Callable[..., Member]]:
    """Start one more member."""
    members: list[Member] = []

    def start(*program: str) -> Member:
        members.append(Member(data_dir, *program))
        return members[-1]

    yield start
    for member in members:
        member.leave(signal.SIGKILL)


@pytest.fixture
def gone() -> Callable[..., bool]:
    """Whether all of these processes end within some seconds."""

    def wait(pids: list[int], seconds: float = 20.0) -> bool:
        assert pids
        return eventually(lambda: not any(processes.is_alive(pid) for pid in pids), seconds)

    return wait
