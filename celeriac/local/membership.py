"""Joining the stack of a data directory, and starting its guard if there is none."""

import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO

from celeriac.local.errors import LocalStackError
from celeriac.local.folders import choose_data_dir, make_data_dir
from celeriac.local.guard import socket_path

PATIENCE = 120.0
# As `python -m celeriac.local.guard`, but without importing Celery, which takes longer than everything else.
RUN_GUARD = """
import sys, types
sys.modules["celeriac"] = types.ModuleType("celeriac")
sys.modules["celeriac"].__path__ = [sys.argv.pop(1)]
from celeriac.local.guard import main
main()
"""


@dataclass(frozen=True)
class Stack:
    """A membership of the running stack; it lasts until `close()` or the end of the process.

    A URL is empty if that server was not requested. Forked children keep the stack running as well.
    """

    database_url: str
    redis_url: str
    # Descriptors, not socket objects: garbage collection of the Stack must not end the membership.
    _connections: list[int] = field(repr=False, compare=False)

    def close(self) -> None:
        while self._connections:
            os.close(self._connections.pop())

    def __enter__(self) -> "Stack":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def join(data_dir: Path | None = None, *, postgres: bool = True, redis: bool = True, linger: float = 0.3) -> Stack:
    """Join the running stack of `data_dir`, or start it.

    The servers stop when the last joined process is gone, `linger` seconds later (the first to join decides).
    Without `data_dir`: CELERIAC_DATA_DIR, or `.celeriac` in the current folder, or for root a folder below
    /var/tmp. Raises LocalStackError.
    """
    folder = choose_data_dir(data_dir)
    make_data_dir(folder)
    request = json.dumps({"postgres": postgres, "redis": redis}).encode()
    deadline = time.monotonic() + PATIENCE
    while (stack := _knock(folder, request)) is None:
        if time.monotonic() > deadline:
            raise _silence(folder)
        if not _start_guard(folder, linger):
            time.sleep(0.05)
    return stack


@contextmanager
def join_temporary() -> Iterator[Stack]:
    """Start a stack in a temporary folder of its own, and wait at the end until servers and folder are gone.

    Raises LocalStackError.
    """
    with tempfile.TemporaryDirectory(prefix="celeriac-stack-") as folder:
        try:
            with join(Path(folder), linger=0) as stack:
                yield stack
        finally:
            _wait_for_the_guards_end(Path(folder))


def _wait_for_the_guards_end(folder: Path) -> None:
    lock = folder / "guard.lock"
    if lock.exists():
        with lock.open("ab") as held:
            fcntl.flock(held, fcntl.LOCK_EX)


def _knock(folder: Path, request: bytes) -> Stack | None:
    """Connect and send the request; return None if no guard listens, or it is just ending."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(socket_path(folder)))
            connection.settimeout(PATIENCE)
            connection.sendall(request)
            line = connection.makefile("rb").readline()
        except (FileNotFoundError, ConnectionError):
            return None
        except PermissionError as error:
            raise _belongs_to_another(folder, error) from error
        except OSError as error:
            raise _silence(folder, f" ({error})") from error
        return _enter(json.loads(line), connection) if line else None


def _enter(reply: dict[str, str], connection: socket.socket) -> Stack:
    if "error" in reply:
        raise LocalStackError(reply["error"])
    connection.setblocking(True)
    return Stack(reply.get("postgres", ""), reply.get("redis", ""), [connection.detach()])


def _start_guard(folder: Path, linger: float) -> bool:
    """Start a guard. Return False if another one holds the lock, as it is starting or stopping."""
    try:
        lock, log = (folder / "guard.lock").open("ab"), (folder / "guard.log").open("ab")
    except PermissionError as error:
        raise _belongs_to_another(folder, error) from error
    with lock, log:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        log.truncate(0)
        _run_guard(folder, linger, lock, log)
    return True


def _run_guard(folder: Path, linger: float, lock: IO[bytes], log: IO[bytes]) -> None:
    """Start the guard and return once it listens. In a session of its own, a terminal's Ctrl-C does not reach it."""
    command = [sys.executable, "-P", "-c", RUN_GUARD, str(Path(__file__).resolve().parents[1]), str(folder)]
    command += [f"--linger={linger}", f"--lock={lock.fileno()}"]
    try:
        subprocess.run(
            command,
            pass_fds=[lock.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise LocalStackError(
            f"The guard of {folder} ended while starting ({sys.executable}: {error.__class__.__name__}).\n"
            f"{_guard_log(folder)}"
        ) from error


def _silence(folder: Path, detail: str = "") -> LocalStackError:
    return LocalStackError(
        f"The guard of {folder} gave no answer within {PATIENCE:g} s{detail}: end the "
        f"process whose number is in {folder / 'guard.lock'}.\n{_guard_log(folder)}"
    )


def _belongs_to_another(folder: Path, error: OSError) -> LocalStackError:
    return LocalStackError(f"{folder} is another user's ({error}): set CELERIAC_DATA_DIR to a folder of yours.")


def _guard_log(folder: Path) -> str:
    log = folder / "guard.log"
    return log.read_text(errors="replace")[-4000:] if log.exists() else ""
