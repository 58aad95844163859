"""Commands that together are one: what each came to, in a table at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.processes import ROOT


class Part(NamedTuple):
    """A command of its own. `environ` adds to this process' environment."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str] = {}


class Done(NamedTuple):
    name: str
    status: int
    seconds: float


def python(*arguments: str) -> list[str]:
    """The command `python -m …`, by the Python that runs this."""
    return [sys.executable, "-m", *arguments]


def run(parts: Sequence[Part], at_once: int = 1) -> int:
    """Runs them, so many at once, each to its end; prints the table. Returns 0 if all went well, else 1."""
    with ThreadPoolExecutor(at_once) as threads:
        done = [*threads.map(_run if at_once == 1 else _run_quietly, parts)]
    print()
    for part in done:
        print(f"{'passed' if part.status == 0 else 'FAILED':8}{part.seconds:7.1f} s  {part.name}")
    return int(any(part.status for part in done))


def _run(part: Part) -> Done:
    print(f"\n== {part.name}", flush=True)
    began = time.monotonic()
    status = subprocess.run(part.command, cwd=ROOT, env={**os.environ, **part.environ}, check=False).returncode
    return Done(part.name, status, time.monotonic() - began)


def _run_quietly(part: Part) -> Done:
    """What it prints is of interest if it fails."""
    began = time.monotonic()
    done = subprocess.run(
        part.command, cwd=ROOT, env={**os.environ, **part.environ}, check=False, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        print(f"\n== {part.name}\n{done.stdout}", flush=True)
    return Done(part.name, done.returncode, time.monotonic() - began)
