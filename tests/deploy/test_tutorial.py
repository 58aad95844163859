"""docs/tutorial.md, from its first line to its last in an empty folder: what it says comes out comes out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.deploy.finishing import finish
from tests.deploy.surroundings import surroundings
from tests.deploy.written import of
from tests.processes import ROOT, Rows, process, until

PAGE = ROOT / "docs" / "tutorial.md"

BLOCKS = of("docs/tutorial.md", "python", "console")

#: A command, with what it prints.
COMMAND = re.compile(r"^\$ (.*)\n((?:[^$].*\n)*)", re.MULTILINE)

#: The file a block goes into is named in the text before it.
NAMED = re.compile(r"In `(\w+\.py)`")


class File(NamedTuple):
    name: str
    code: str


class Run(NamedTuple):
    command: str
    prints: str


#: As in the page's `window`, and one more that may have begun beside them.
FIRST = 9


def steps() -> Iterator[File | Run]:
    page = PAGE.read_text().splitlines()
    for block in BLOCKS:
        if block.language == "python":
            yield File(NAMED.findall("\n".join(page[: block.line]))[-1], block.text)
        else:
            yield from (Run(*found) for found in COMMAND.findall(block.text))


@pytest.mark.timeout(180)
def test_it_goes_as_it_says(rows: Rows, database_url: str, redis_url: str, venv: Path, tmp_path: Path) -> None:
    rows("DROP SCHEMA celeriac CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    environ = surroundings(venv, DATABASE_URL=database_url, REDIS_URL=redis_url, PIP_NO_INDEX="1")
    with ExitStack() as running:
        for step in steps():
            if isinstance(step, File):
                (tmp_path / step.name).write_text(step.code)
            elif " worker " in step.command:
                command = ["bash", "-c", f"cd {tmp_path} && exec {step.command}"]
                worker = running.enter_context(process(command, environ, tmp_path / "worker.log", alone=True))
            else:
                goes_as_written(step, environ, tmp_path)
        worker.process.terminate()
        until(lambda: worker.process.poll() is not None, "the worker to end")
    assert worker.process.poll() == 0


def goes_as_written(step: Run, environ: Mapping[str, str], folder: Path) -> None:
    done = finish(step.command, environ, folder)
    assert done.returncode == 0, f"{step.command}\n{done.stdout}"
    for line in step.prints.splitlines():
        like = ".*".join(map(re.escape, line.split("…")))
        assert re.search(f"^{like}$", done.stdout, re.MULTILINE), f"{step.command}\n{done.stdout}"
    for last in re.findall(r"among the first (\d+) of", done.stdout):
        assert int(last) <= FIRST
