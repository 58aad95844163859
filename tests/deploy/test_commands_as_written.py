"""Every command of README.md and docs/*.md is run as it is written there, page by page, on servers of its own."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from celeriac.cli import main
from tasks import app
from tests.processes import ROOT, Rows, process, until
from tests.systems.stack import QUICK, on_servers

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: What a line of a page that is a command begins with.
COMMAND = re.compile(r"^(?:    |\$ )((?:[A-Z_]+=\S+ )*(?:celeriac|celery|make|docker|python) .*)$", re.MULTILINE)

#: What runs until it is stopped, and what it prints once it is up.
LASTING = {
    "worker": "[queues]",
    "beat": "schedules -> scheduled_jobs",
    "flower": "Visit me at",
    "serve": "Uvicorn running",
    "status --watch": "workers,",
}

#: Run elsewhere: `make test` is what runs this, the others take minutes and judge themselves.
ELSEWHERE = {"make": ("demo", "test", "up", "proof", "bench")}


def written(page: Path) -> list[str]:
    """The page's commands in order, without what is said of them."""
    return [re.sub(r"\s+#.*$", "", line).strip() for line in COMMAND.findall(page.read_text())]


def lasting(command: str) -> str | None:
    """What it prints once it is up, if it lasts."""
    words = " ".join(shlex.split(command))
    return next((up for part, up in LASTING.items() if re.search(rf" {part}\b", words)), None)


EVERY = [(page, command) for page in PAGES for command in written(page)]
LASTS = sorted({command for _, command in EVERY if lasting(command)})


@pytest.fixture
def environ(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    given = QUICK | {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
    with on_servers(app, given):
        yield given


@pytest.mark.parametrize("page", [page for page in PAGES if written(page)], ids=lambda page: str(page.stem))
def test_the_commands_that_end_do_what_they_say(page: Path, environ: dict[str, str], rows: Rows) -> None:
    app.register_roles()
    rows("INSERT INTO workers (worker_id, hostname, pid, concurrency) VALUES ('store-7:31', 'store-7', 31, 3)")
    for command in written(page):
        program, *arguments = shlex.split(command)
        if program == "celeriac" and lasting(command) is None:
            result = CliRunner().invoke(main, arguments)
            assert result.exit_code == 0, f"{command}\n{result.output}\n{result.exception!r}"


def test_the_commands_that_last_come_up_and_go_when_told(environ: dict[str, str], tmp_path: Path) -> None:
    app.register_roles()
    with ExitStack() as stack:
        running = {}
        for number, command in enumerate(LASTS):
            ports = {"CELERIAC_API_PORT": str(free_port()), "FLOWER_PORT": str(free_port())}
            given = environ | ports | {"PATH": f"{programs(tmp_path)}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
            log = tmp_path / f"{number}.log"
            running[command] = stack.enter_context(process(["bash", "-c", f"exec env {command}"], given, log))
        for command, one in running.items():
            shown = str(lasting(command))
            until(lambda o=one, s=shown: s in o.printed() or o.process.poll() is not None, f"{command} to be up")  # type: ignore[misc]
            assert one.process.poll() is None, f"{command}\n{one.printed()[-2000:]}"
        for one in running.values():
            one.process.send_signal(signal.SIGINT if "--watch" in str(one.process.args) else signal.SIGTERM)
        for command, one in running.items():
            until(lambda o=one: o.process.poll() is not None, f"{command} to end")  # type: ignore[misc]


def test_whatever_else_is_written_is_run_elsewhere() -> None:
    for page, command in EVERY:
        program, *arguments = shlex.split(re.sub(r"^(?:[A-Z_]+=\S+ )+", "", command))
        if program in ("celeriac", "celery"):
            assert program == "celeriac" or lasting(command), f"{page.name}: {command}"
            continue
        assert arguments[0] in ELSEWHERE[program], f"{page.name}: {command}"
        dry = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        assert dry.returncode == 0, dry.stderr


def test_every_command_has_a_place_in_the_pages() -> None:
    def names(group: Any, before: str = "") -> set[str]:
        found = {f"{before}{name}": command for name, command in group.commands.items()}
        return {n for name, c in found.items() for n in (names(c, f"{name} ") if hasattr(c, "commands") else {name})}

    pages = "".join(page.read_text() for page in PAGES)
    assert {name for name in names(main) if f"celeriac {name}" not in pages} == set()


def programs(folder: Path) -> Path:
    """A folder with `celeriac` and `celery` as this Python has them."""
    if not (place := folder / "bin").exists():
        place.mkdir()
        for name, code in (
            ("celeriac", "from celeriac.cli import main; main()"),
            ("celery", "from celery.__main__ import main; main()"),
        ):
            program = place / name
            program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{code}' \"$@\"\n")
            program.chmod(0o755)
    return place


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
