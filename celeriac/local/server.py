"""A server as a child process that can be started, stopped, killed, paused and resumed repeatedly."""

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, ClassVar

from celeriac.local import processes
from celeriac.local.account import Account
from celeriac.local.errors import LocalStackError

LOG_TAIL_LINES = 20
LARGE_LOG_BYTES = 5_000_000
START_PATIENCE = 60.0
STOP_PATIENCE = 30.0


class Server(ABC):
    """The base of both servers. A server that still runs in `folder` is stopped first.

    On Linux the server ends with the thread that started it, so start it from a thread that lasts.
    """

    name: ClassVar[str]
    farewell: ClassVar[signal.Signals]

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.log = self.folder / "log"
        self.account = Account.for_servers()
        self._process: subprocess.Popen[bytes] | None = None
        self.account.make_hall(self.folder)

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def _start(self) -> None: ...

    def start(self) -> None:
        """Start the server and wait until it answers, at the same address as before. Does nothing if it runs."""
        if not self.running:
            self._start()

    @property
    def running(self) -> bool:
        """True if the server runs. A killed one does not, though its last threads may still be ending."""
        process = self._process
        return process is not None and process.poll() is None and processes.is_alive(process.pid)

    @property
    def pid(self) -> int:
        if self._process is None or not self.running:
            raise LocalStackError(f"{self.name} is not running: call start() first.")
        return self._process.pid

    def stop(self) -> None:
        """Shut down regularly, which keeps committed data; kill the server after 30 s."""
        if self._process is None or not self.running:
            return
        self._process.send_signal(self.farewell)
        processes.signal_family(self._process.pid, signal.SIGCONT)
        try:
            self._process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL to the server and its children at once, like a power cut."""
        if self._process is not None and self.running:
            processes.kill_family(self._process.pid)
            self._process.wait()

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open and nothing answers."""
        processes.signal_family(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        processes.signal_family(self.pid, signal.SIGCONT)

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def _launch(self, command: Sequence[str], home: Path, ready: Callable[[int], bool]) -> None:
        try:
            self._wait_until(ready, self._spawn(command, home))
        except BaseException:
            self.kill()
            raise

    def _spawn(self, command: Sequence[str], home: Path) -> int:
        with self._surroundings(home) as options:
            self._process = subprocess.Popen(
                command,
                process_group=0,  # keeps a terminal's Ctrl-C from the server
                preexec_fn=processes.follow_parent(self.farewell),  # noqa: PLW1509 - it only asks the kernel
                **options,
            )
            return self._process.pid

    @contextmanager
    def _surroundings(self, home: Path) -> Iterator[dict[str, Any]]:
        """Provide folder, user and log for each of the server's programs."""
        self._prepare_log()
        try:
            with self.log.open("ab") as log, self._stdin() as stdin:
                yield {
                    "cwd": home,
                    "env": server_environment(),
                    "stdin": stdin,
                    "stdout": log,
                    "stderr": subprocess.STDOUT,
                    **self.account.spawn_options(),
                }
        except (OSError, subprocess.SubprocessError) as error:
            raise LocalStackError(f"{self.name} cannot be run: {error}.") from error

    def _stdin(self) -> IO[bytes]:
        """Return the standard input of its programs, which is empty."""
        return open(os.devnull, "rb")

    def _wait_until(self, ready: Callable[[int], bool], pid: int) -> None:
        deadline = time.monotonic() + START_PATIENCE
        while not ready(pid):
            if not self.running:
                raise self._failure("ended while starting")
            if time.monotonic() > deadline:
                raise self._failure(f"was not ready after {START_PATIENCE:g} s")
            time.sleep(0.02)

    def _failure(self, what: str) -> LocalStackError:
        return LocalStackError(f"{self.name} {what}. The end of its log, {self.log}:\n{self.log_tail()}")

    def _end_leftover(self, pid_file: Path, home: Path) -> None:
        pid = first_number(pid_file)
        if pid is None or not processes.is_alive(pid):
            return
        if processes.works_in(pid, home):
            processes.end(pid, self.farewell, STOP_PATIENCE)
        else:
            # After a reboot or in a new container another process may have the number, and a server trusts the file.
            pid_file.unlink(missing_ok=True)

    def _prepare_log(self) -> None:
        if self.log.exists() and self.log.stat().st_size > LARGE_LOG_BYTES:
            self.log.replace(self.log.with_suffix(".old"))
        self.log.touch(mode=0o600)


def server_environment() -> dict[str, str]:
    """Return this process's environment without settings for other Postgres servers and other languages."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return ours | {"LC_ALL": "C", "TZ": "UTC"}


def first_number(file: Path) -> int | None:
    with suppress(FileNotFoundError, IndexError, ValueError):
        return int(file.read_text().split()[0])
    return None
