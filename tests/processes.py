"""Real Celery processes for tests: started, waited for by condition, stopped whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil
from sqlalchemy import create_engine, text

from tests import forked
from tests.forked import Forked, can_be_forked
from tests.matrix.pooled import around

ROOT = Path(__file__).parent.parent
T = TypeVar("T")

#: In an environment: the command is executed, and not forked from what has imported its libraries.
EXECUTED = "EXECUTED"

#: Waiting is bounded by this (seconds); a condition that holds ends it at once.
PATIENCE = 60.0


def until(condition: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """The first true value of `condition`; fails, naming `what`, if there is none in time."""
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        if waited > patience:
            raise AssertionError(f"waited {patience:g} s in vain for {what}")
        time.sleep(min(max(waited / 20, 0.02), 0.15))  # who asks all the time keeps what it waits for from coming
    return value


def crowd() -> float:
    """How many processes want each processor, at least 1: what a bound in seconds is multiplied by where others run."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def answers(url: str) -> bool:
    """Whether a server is there, and well."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class Rows:
    """Plain SQL on a test's database."""

    def __init__(self, url: str) -> None:
        self.engine = create_engine(
            around(url),
            isolation_level="AUTOCOMMIT",
            use_native_hstore=False,
            connect_args={"options": "-c search_path=public,celeriac"},
        )

    def __call__(self, statement: str, **given: object) -> list[tuple]:  # type: ignore[type-arg]
        with self.engine.connect() as connection:
            result = connection.execute(text(statement), given)
            return [tuple(row) for row in result] if result.returns_rows else []

    def one(self, statement: str, **given: object) -> object:
        ((value,),) = self(statement, **given)
        return value

    def close(self) -> None:
        self.engine.dispose()


class Running:
    """A process in a session of its own, with what it has printed. `alone`: it has nothing of our environment.

    `since`: of its log, how many bytes were printed for others before.
    """

    since = 0

    def __init__(self, command: list[str], environ: Mapping[str, str], log: Path, *, alone: bool = False) -> None:
        self.log = log
        given = {**({} if alone else os.environ), **environ}
        self.process: Forked | subprocess.Popen[bytes]
        if can_be_forked(command) and EXECUTED not in environ:
            self.process = Forked(command, given, ROOT, log)
        else:
            with log.open("ab") as output:
                self.process = subprocess.Popen(
                    command, cwd=ROOT, env=given, stdout=output, stderr=output, start_new_session=True
                )
        self.pid = self.process.pid

    def children(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.pid).children()]

    def printed(self) -> str:
        with self.log.open("rb") as log:
            log.seek(self.since)
            return log.read().decode(errors="replace")

    def signal_all(self, number: int) -> None:
        os.killpg(self.pid, number)

    def stop(self, patience: float = 30.0) -> int:
        """SIGTERM, and SIGKILL for the whole group if that is not enough; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"{self.process.args!r} did not stop in {patience:g} s:\n{self.printed()[-3000:]}"
            ) from None

    def kill(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            self.process.wait()


@contextmanager
def process(command: list[str], environ: Mapping[str, str], log: Path, *, alone: bool = False) -> Iterator[Running]:
    running = Running(command, environ, log, alone=alone)
    try:
        yield running
    finally:
        running.kill()


def finished(
    command: list[str], environ: Mapping[str, str], cwd: Path = ROOT, timeout: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """Runs `python -m …` or `python -c …` to its end, with this environment and nothing of ours."""
    return forked.finished(command, environ, cwd, timeout)


def refusal(command: list[str], environ: Mapping[str, str], log: Path) -> str:
    """What a process says last that refuses to start: status 1, and no traceback."""
    with process(command, environ, log) as started:
        until(lambda: started.process.poll() is not None, "it to refuse")
        printed = started.printed()
    assert started.process.poll() == 1
    assert "Traceback" not in printed
    return printed.strip().splitlines()[-1]


@contextmanager
def worker(
    module: str,
    database_url: str,
    redis_url: str,
    log: Path,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """`celery -A module worker`, ready to work."""
    given = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT), **(environ or {})}
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        module,
        "worker",
        "-l",
        "INFO",
        "--without-mingle",
        "--without-gossip",
    ]
    with process([*command, *(arguments or ("-c", "2"))], given, log) as running:
        until(
            lambda: " ready." in running.printed() or running.process.poll() is not None,
            f"{module} to be ready",
        )
        assert running.process.poll() is None, running.printed()[-3000:]
        yield running


@contextmanager
def beat(module: str, database_url: str, redis_url: str, log: Path, environ: Mapping[str, str]) -> Iterator[Running]:
    """`celery -A module beat`."""
    given = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT), **environ}
    command = [sys.executable, "-m", "celery", "-A", module, "beat", "-l", "INFO"]
    with process(command, given, log) as running:
        yield running
