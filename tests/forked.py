"""Python programs as processes of their own, forked from one that has imported what they all need.

A worker's imports cost more than most of what tests have it do. The programs themselves, and all that reads the
environment, are imported by the fork. Of the commands that are tested as they are written (`tests/deploy`), those that
are more than one Python are executed: make's, a whole stack's, those of docker-compose.yml.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

#: Nothing of these looks at the environment, starts a thread or opens a connection when imported. Not
#: `celeriac.worker`: the memory it shares with its children would be shared by all workers.
IMPORTED = (
    "celeriac.api", "celeriac.schedules.beat", "celeriac.cli", "celery.app.amqp", "celery.app.control",
    "celery.app.events", "celery.apps.beat", "celery.apps.worker", "celery.bin.celery", "celery.concurrency.prefork",
    "celery.fixups.django", "celery.worker.consumer", "celery.worker.pidbox", "celery.worker.state", "dns.resolver",
    "fastapi", "flower.command", "fsspec", "httpx", "kombu.transport.redis", "praw", "psutil", "psycopg2", "runpy",
    "sqlalchemy.dialects.postgresql.psycopg2", "sqlalchemy.orm", "uvicorn",
)  # fmt: skip

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(list(IMPORTED))


def can_be_forked(command: list[str]) -> bool:
    """Gevent has to be there before whatever it patches."""
    return command[0] == sys.executable and command[1] in ("-m", "-c") and "gevent" not in command


class Forked:
    """As much of a `subprocess.Popen` as tests use: `python -m …` or `python -c …` in a session of its own.

    It prints into `log`, its errors into `errors` if that is given. Raises what `Popen` does: TimeoutExpired from
    `wait`.
    """

    def __init__(
        self, command: list[str], environ: Mapping[str, str], cwd: Path, log: Path, errors: Path | None = None
    ) -> None:
        self.args = command
        log.touch()
        given = (command[1:], dict(environ), cwd, log, errors or log)
        self._process = _processes.Process(target=_run, args=given, name="MainProcess")
        self._process.start()
        assert self._process.pid
        self.pid: int = self._process.pid
        with contextlib.suppress(ProcessLookupError):
            while os.getpgid(self.pid) != self.pid:
                time.sleep(0.001)

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self._process.terminate()


def finished(
    command: list[str], environ: Mapping[str, str], cwd: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, as `subprocess.run` with its output captured does. Raises TimeoutExpired."""
    with tempfile.TemporaryDirectory() as folder:
        printed, errors = Path(folder) / "printed", Path(folder) / "errors"
        errors.touch()
        forked = Forked(command, environ, cwd, printed, errors)
        try:
            status = forked.wait(timeout)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(forked.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(command, status, printed.read_text(), errors.read_text())


def _run(command: list[str], environ: dict[str, str], cwd: Path, log: Path, errors: Path) -> None:
    assert "celeriac.worker" not in sys.modules
    gc.freeze()  # else each collection walks, and copies, all that was imported for others
    how, program, *_ = command
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    for path, stream in ((log, 1), (errors, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), stream)
    sys.path[:0] = [str(cwd), *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = command[1:] if how == "-m" else ["-c", *command[2:]]
    try:
        if how == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            exec(program, {"__name__": "__main__"})
    finally:
        with contextlib.suppress(Exception):
            atexit._run_exitfuncs()
