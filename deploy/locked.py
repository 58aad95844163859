"""The part of constraints.txt, hashes included, that the project needs with some of its extras, and to be built.

    python deploy/locked.py systems,s3,dashboard

pip resolves it without running or installing anything, by the versions of constraints.txt.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

#: Beside pyproject.toml and constraints.txt, wherever it is called.
FOLDER = Path.cwd()

BLOCK = re.compile(r"^(\S+)==\S+(?: \\\n +--hash=\S+)+$", re.MULTILINE)


def needed(extras: list[str]) -> list[str]:
    """Return requirements; an extra that names others of the project's own brings theirs."""
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())
    optional = project["project"]["optional-dependencies"]

    def of(extra: str) -> Iterator[str]:
        for requirement in optional[extra]:
            own = re.fullmatch(r"celeriac\[([\w,]+)\]", requirement)
            yield from (one for name in own[1].split(",") for one in of(name)) if own else [requirement]

    extra = [requirement for name in extras for requirement in of(name)]
    return [*project["build-system"]["requires"], *project["project"]["dependencies"], *extra]


def resolved(requirements: list[str], pins: list[str]) -> set[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(pins))
        constraints.flush()
        command = ["install", "--quiet", "--dry-run", "--ignore-installed", "--only-binary", ":all:", "--report", "-"]
        done = subprocess.run(
            [sys.executable, "-m", "pip", *command, "--constraint", constraints.name, *requirements],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    return {normal(one["metadata"]["name"]) for one in json.loads(done.stdout)["install"]}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(extras: list[str]) -> list[str]:
    """Return a block of lines for each. Raises SystemExit for one that constraints.txt does not have."""
    text = (FOLDER / "constraints.txt").read_text()
    blocks = {normal(block[1]): block[0] for block in BLOCK.finditer(text)}
    wanted = resolved(needed(extras), [block.partition(" ")[0] for block in blocks.values()])
    if lacking := sorted(wanted - set(blocks)):
        sys.exit(f"constraints.txt lacks {', '.join(lacking)}")
    return [blocks[name] for name in sorted(wanted)]


if __name__ == "__main__":
    print("\n".join(locked(sys.argv[1].split(","))))
