"""The whole stack in one terminal: child processes with their output side by side, ended together."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from sqlalchemy.exc import SQLAlchemyError

from celeriac.cli import output
from celeriac.errors import CeleriacError
from celeriac.operate import audit, sessions, tokens
from celeriac.operate.audit import Change
from celeriac.store.failures import in_a_line

if TYPE_CHECKING:
    from celeriac.app import Celeriac
    from celeriac.store.connections import Database

#: Seconds that a process has to end before it is killed.
PATIENCE = 30.0

HOST = "127.0.0.1"

DASHBOARD = "dashboard"

#: The prefix of the name of a run's token. The printed link begins a session of it; nobody has the secret.
BY_LINK = "celeriac up"


def has_flower() -> bool:
    return find_spec("flower") is not None


def has_dashboard() -> bool:
    return all(map(find_spec, ("fastapi", "jinja2", "uvicorn")))


def free_port(wanted: int) -> int:
    """Return the port, or any free one if it is taken."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError(f"{HOST} has no free port")


def commands(
    name: str, others: Mapping[str, list[str]], port: int, flower_port: int, concurrency: int, *, has_redis: bool
) -> dict[str, list[str]]:
    """Return the commands to run, by name; the dashboard, at `port`, starts last."""
    celery = [sys.executable, "-m", "celery", "-A", name]
    stack = {
        "worker": [*celery, "worker", "-c", str(concurrency), "-E", "-l", "INFO"],
        "beat": [*celery, "beat", "-l", "INFO"],
    }
    if has_flower() and has_redis:
        stack["flower"] = [*celery, "flower", f"--port={flower_port}", "--address=127.0.0.1"]
    if has_dashboard():
        stack[DASHBOARD] = [*celery, "celeriac", "serve", f"--host={HOST}", f"--port={port}"]
    return {**others} | stack


def run(app: Celeriac, name: str, others: Sequence[str], port: int, flower_port: int, concurrency: int) -> int:
    """Run until Ctrl-C, SIGTERM or the end of any process but the dashboard, and return that process's exit status.
    `others`: further processes, each `NAME=COMMAND`. If one of them serves, the dashboard leaves the port to it.
    """
    environ = dict(os.environ) | {"DATABASE_URL": app.database_url, "REDIS_URL": app.redis_url}
    beside = {key: shlex.split(command) for key, _, command in (other.partition("=") for other in others)}
    port = free_port(0 if any("serve" in command for command in beside.values()) else port)
    has_redis, flower_port = app.settings.has_redis, free_port(flower_port)
    _tell_addresses(app, flower_port)
    processes = {
        key: _start(key, command, environ)
        for key, command in commands(name, beside, port, flower_port, concurrency, has_redis=has_redis).items()
    }
    ended = threading.Event()
    _watch(processes, ended)
    _end_on_signals(ended)
    if dashboard := processes.get(DASHBOARD):
        threading.Thread(target=_tell_link, args=(app.database, port, dashboard, ended), daemon=True).start()
    ended.wait()
    return _stop(processes)


def _tell_addresses(app: Celeriac, flower_port: int) -> None:
    output.say(f"postgres  {output.without_password(app.database_url)}")
    output.say(f"redis     {output.without_password(app.redis_url)}")
    if not has_dashboard():
        output.say("dashboard is not installed: pip install 'celeriac[dashboard]'")
    if not app.settings.has_redis:
        return
    where = f"http://127.0.0.1:{flower_port}" if has_flower() else "is not installed: pip install flower"
    output.say(f"flower    {where}")


def _tell_link(database: Database, port: int, dashboard: subprocess.Popen[str], ended: threading.Event) -> None:
    """Print the link once the dashboard listens, or why there is none."""
    while not ended.wait(0.1) and dashboard.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                break
    else:
        return
    try:
        code = sign_in_code(database)
    except (CeleriacError, SQLAlchemyError) as error:
        output.say(f"dashboard http://{HOST}:{port}/admin without a link to sign in by: {in_a_line(error)}")
        output.say("dashboard  ↑ asks for a token, which this prints: celeriac tokens create NAME --scope operate")
    else:
        output.say(f"dashboard http://{HOST}:{port}/admin/sign-in?code={code}")
        output.say(f"dashboard  ↑ signs in once, within {sessions.CODE_LASTS // 60} minutes, on this machine")


def sign_in_code(database: Database) -> str:
    """Return a code that begins one admin session. Its token is new, and lasts as long as code and session together."""
    name, by = f"{BY_LINK} {secrets.token_hex(4)}", output.by()
    with database.transaction() as connection:
        made = tokens.create(
            connection, name, [tokens.ADMIN], by=by, seconds=sessions.CODE_LASTS + sessions.LONGEST
        )  # fmt: skip
        change = Change(name, None, tokens.in_trail(connection, name) | {"by_link": True})
        audit.write(connection, "create", "token", [change], by=by)
        return sessions.make_code(connection, tokens.id_of(made))


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
    def wait(name: str, process: subprocess.Popen[str]) -> None:
        code = process.wait()
        if name != DASHBOARD:
            ended.set()
        elif not ended.is_set():
            output.say(f"dashboard ended by itself with status {code}; the others go on", err=True)

    for one in processes.items():
        threading.Thread(target=wait, args=one, daemon=True).start()


def _end_on_signals(ended: threading.Event) -> None:
    def end(_: int, __: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _stop(processes: Mapping[str, subprocess.Popen[str]]) -> int:
    codes = {name: process.poll() for name, process in processes.items() if name != DASHBOARD}
    gone = {name: code for name, code in codes.items() if code is not None}
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
