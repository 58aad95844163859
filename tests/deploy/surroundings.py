"""What a command of the pages finds around it: programs in PATH, a virtual environment for make, free ports."""

from __future__ import annotations

import os
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
