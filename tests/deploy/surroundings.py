"""What a command of the pages finds around it: programs in PATH, a virtual environment for make, free ports."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

from tests.deploy.compose import free_port
from tests.processes import ROOT

#: As this Python has them, whether it is in a virtual environment or not.
PROGRAMS = {
    "python": "",
    "pip": "-m pip",
    "celeriac": "-c 'from celeriac.cli import main; main()'",
    "celery": "-m celery",
    "docker": "-m tests.deploy.docker",
}

#: What a shell takes otherwise than as a part of a word.
OF_SHELL = re.compile(r"[|&;<>$`\n]")

#: A file as Python runs it that is given one: its folder is where modules are looked for first.
FILE = "import runpy, sys; sys.path.insert(0, {folder!r}); runpy.run_path({file!r}, run_name='__main__')"

#: Of the surroundings, what has nothing to do with what is run.
KEPT = ("HOME", "LANG", "TMPDIR", "CI", "CHROMIUM_PATH")

PORTS = ("CELERIAC_API_PORT", "FLOWER_PORT", "SANDBOX_HTTP_PORT", "SANDBOX_SMTP_PORT", "SANDBOX_DNS_PORT")


def surroundings(venv: Path, **given: str) -> dict[str, str]:
    """The environment of a command, whole."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    found = {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "VENV": str(venv), "PYTHONPATH": str(ROOT)}
    return kept | found | {"PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"} | given


def free_ports() -> dict[str, str]:
    return {name: free_port() for name in PORTS}


def make_venv(folder: Path) -> Path:
    """What `make` takes for a virtual environment that is ready: it installs nothing."""
    programs = folder / "venv" / "bin"
    programs.mkdir(parents=True)
    for name, options in PROGRAMS.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {options} "$@"\n')
        (programs / name).chmod(0o755)
    (programs.parent / ".ready").touch()
    return programs.parent


def as_python(command: str) -> tuple[list[str], dict[str, str]] | None:
    """The one Python that a shell would start by a command, as `tests.forked` takes it, and the variables set for it.

    None where the command starts anything else.
    """
    if OF_SHELL.search(command):
        return None
    words, given = shlex.split(command), dict[str, str]()
    while words and (set_first := re.fullmatch(r"([A-Z_]+)=(.*)", words[0])):
        given[set_first[1]] = set_first[2]
        del words[0]
    program, *arguments = words or [""]
    if program not in PROGRAMS or program == "docker":
        return None
    arguments = [*shlex.split(PROGRAMS[program]), *arguments]
    if arguments and arguments[0].endswith(".py"):
        arguments[:1] = ["-c", FILE.format(folder=os.path.dirname(arguments[0]), file=arguments[0])]
    return ([sys.executable, *arguments], given) if arguments and arguments[0] in ("-m", "-c") else None
