"""Each command refuses an address whose password is not quoted, in a line without a character of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from celeriac.settings import HOW_TO_WRITE
from tests import processes
from tests.processes import ROOT, until

UNQUOTED = {
    "DATABASE_URL": "postgresql://u:p@Qx7:w/d#1@127.0.0.1:5432/none",
    "REDIS_URL": "redis://:p@Qx7/w#Zy9@127.0.0.1:6379/0",
}

CELERIAC = "from celeriac.cli import main; main()"
CELERY = "from celery.__main__ import main; main()"
DELAY = "from tests.end_to_end.ordinary import unnamed; unnamed.delay(1)"

COMMANDS: Mapping[str, tuple[str, str]] = {
    "check": (CELERIAC, "check"),
    "status": (CELERIAC, "status"),
    "migrate": (CELERIAC, "migrate"),
    "serve": (CELERIAC, "serve --port 0"),
    "worker": (CELERY, "worker -c 1"),
    "threads": (CELERY, "worker -P threads -c 1"),
    "embedded beat": (CELERY, "worker -c 1 -B"),
    "beat": (CELERY, "beat"),
    "sender": (DELAY, ""),
}

#: These read no Redis.
OF_POSTGRES = {"status", "migrate"}

CASES = [(name, v) for v in UNQUOTED for name in COMMANDS if v == "DATABASE_URL" or name not in OF_POSTGRES]

#: By day one of each kind of program, and of each address.
BY_DAY = {("check", "DATABASE_URL"), ("beat", "DATABASE_URL"), ("sender", "DATABASE_URL"), ("worker", "REDIS_URL")}

BY_NIGHT = pytest.mark.nightly("the same line of other commands, which read the settings by the same code")


@pytest.mark.parametrize(
    ("name", "variable"),
    [pytest.param(*case, id=" ".join(case), marks=() if case in BY_DAY else BY_NIGHT) for case in CASES],
)
def test_a_command_names_the_variable_and_shows_nothing_of_the_password(
    name: str, variable: str, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    program, arguments = COMMANDS[name]
    app = [] if name == "sender" else ["-A", "tests.end_to_end.ordinary"]
    urls = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, *app, *arguments.split()]
    with processes.process(command, urls | {variable: UNQUOTED[variable]}, tmp_path / "log") as started:
        until(lambda: started.process.poll() is not None, "it to end")
        printed = started.printed()
    assert started.process.poll() == 1
    (line,) = [line for line in printed.splitlines() if variable in line]
    assert f"{variable} cannot be read: give " in line
    assert HOW_TO_WRITE in line
    assert line == printed.strip().splitlines()[-1]
    assert "Qx7" not in printed
    assert "Zy9" not in printed
    assert name == "sender" or "Traceback" not in printed
