"""The whole stack in one terminal: child processes with their output side by side, ended together."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from celeriac.cli import output

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: How long (seconds) a process may take to end before it is killed.
PATIENCE = 30.0


def has_flower() -> bool:
    return find_spec("flower") is not None


def commands(
    name: str, others: Sequence[str], flower_port: int, concurrency: int, *, has_redis: bool
) -> dict[str, list[str]]:
    """Return the commands to run, by name. `others`: `NAME=COMMAND` each."""
    celery = [sys.executable, "-m", "celery", "-A", name]
    stack = {
        "worker": [*celery, "worker", "-c", str(concurrency), "-E", "-l", "INFO"],
        "beat": [*celery, "beat", "-l", "INFO"],
    }
    if has_flower() and has_redis:
        stack["flower"] = [*celery, "flower", f"--port={flower_port}", "--address=127.0.0.1"]
    others_by_name = dict(other.partition("=")[::2] for other in others)
    return {key: shlex.split(command) for key, command in others_by_name.items()} | stack


def run(app: Celeriac, name: str, others: Sequence[str], flower_port: int, concurrency: int) -> int:
    """Run until Ctrl-C, SIGTERM or the end of one of them; return that one's exit status."""
    environ = dict(os.environ) | {"DATABASE_URL": app.database_url, "REDIS_URL": app.redis_url}
    has_redis = app.settings.has_redis
    _tell_addresses(app, flower_port)
    processes = {
        key: _start(key, command, environ)
        for key, command in commands(name, others, flower_port, concurrency, has_redis=has_redis).items()
    }
    ended = threading.Event()
    _watch(processes, ended)
    _end_on_signals(ended)
    ended.wait()
    return _stop(processes)


def _tell_addresses(app: Celeriac, flower_port: int) -> None:
    output.say(f"postgres  {output.without_password(app.database_url)}")
    output.say(f"redis     {output.without_password(app.redis_url)}")
    if not app.settings.has_redis:
        return
    where = f"http://127.0.0.1:{flower_port}" if has_flower() else "is not installed: pip install flower"
    output.say(f"flower    {where}")


def _start(name: str, command: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        command, env=dict(environ), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout
    threading.Thread(target=_relay, args=(name, process.stdout), daemon=True).start()
    return process


def _relay(name: str, lines: TextIO) -> None:
    for line in lines:
        output.say(f"{name:9} {line.rstrip()}")


def _watch(processes: Mapping[str, subprocess.Popen[str]], ended: threading.Event) -> None:
    def wait(process: subprocess.Popen[str]) -> None:
        process.wait()
        ended.set()

    for process in processes.values():
        threading.Thread(target=wait, args=(process,), daemon=True).start()


def _end_on_signals(ended: threading.Event) -> None:
    def end(_: int, __: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _stop(processes: Mapping[str, subprocess.Popen[str]]) -> int:
    gone = {name: code for name, process in processes.items() if (code := process.poll()) is not None}
    for process in processes.values():
        if process.poll() is None:
            process.terminate()
    for process in processes.values():
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
    for name, code in gone.items():
        output.say(f"{name} ended by itself with status {code}", err=True)
    return next((abs(code) or 1 for code in gone.values()), 0)
