"""Commands that end by themselves, run in a shell as they are written."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.processes import ROOT


class Finishing(NamedTuple):
    """What a command prints when it is done, and what is set for it, so that it is done soon."""

    prints: str
    environ: Mapping[str, str] = {}


def failing(commands: Mapping[str, Finishing], given: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Runs them, three at a time; those that did not succeed, with what they printed."""
    with ThreadPoolExecutor(3) as side_by_side:
        done = {c: side_by_side.submit(finish, c, {**given[c], **one.environ}) for c, one in commands.items()}
    for command, one in ((command, future.result()) for command, future in done.items()):
        if one.returncode or commands[command].prints not in one.stdout:
            yield f"{command}\n{one.stdout[-3000:]}"


def finish(command: str, environ: Mapping[str, str], folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=environ, text=True, check=False, **both)  # type: ignore[call-overload,no-any-return]
