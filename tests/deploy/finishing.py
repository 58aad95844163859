"""Commands that end by themselves, run as a shell runs what is written.

Where that is one Python, it is forked from a process that has imported what most of them import: see `tests.forked`.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from os import killpg
from pathlib import Path
from signal import SIGKILL
from typing import NamedTuple

from tests.deploy.surroundings import as_python
from tests.forked import Forked
from tests.processes import ROOT

#: Seconds for a command.
PATIENCE = 600.0


class Finishing(NamedTuple):
    """What a command prints when it is done, and what is set for it, so that it is done soon."""

    prints: str
    environ: Mapping[str, str] = {}


def failing(commands: Mapping[str, Finishing], given: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Runs them; those that did not succeed, with what they printed."""
    for command, (prints, environ) in commands.items():
        done = finish(command, {**given[command], **environ})
        if done.returncode or prints not in done.stdout:
            yield f"{command}\n{done.stdout[-3000:]}"


def finish(command: str, environ: Mapping[str, str], folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Its status, and all that it prints as `stdout`."""
    if (python := as_python(command)) is not None:
        return _forked(*python, environ, folder)
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=environ, text=True, check=False, **both)  # type: ignore[call-overload,no-any-return]


def _forked(
    words: list[str], more: Mapping[str, str], environ: Mapping[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as logs:
        log = Path(logs, "printed")
        forked = Forked(words, {**environ, **more}, folder, log)
        try:
            status = forked.wait(PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                killpg(forked.pid, SIGKILL)
        return subprocess.CompletedProcess(words, status, log.read_text())
