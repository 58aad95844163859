"""What is released, made and tried: `make dist`.

    python deploy/release.py     writes the sdist, the wheel and a list of what the wheel needs (CycloneDX) to dist/

Both are built twice and are the same, byte for byte. The wheel has every file of the engine that git has and no other;
it is installed where nothing else is, and a new project's first task is completed there.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
CONSTRAINTS = ROOT / "constraints.txt"

#: What the wheel has, as git knows it.
PACKED = ("celeriac", "pytest_celeriac.py")

#: Seconds until a new project's first task is completed, servers and all.
PATIENCE = 120.0


class Wrong(Exception):
    """The message says what; nothing is in dist/."""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="celeriac-release-") as name:
        folder = Path(name)
        first, again = (build(folder / name) for name in ("first", "again"))
        refuse_differences(first, again)
        sdist, wheel = first
        check(sdist, wheel)
        version = wheel.name.split("-")[1]
        with new_environment(folder / "venv") as python:
            install(python, str(wheel))
            bill = folder / f"celeriac-{version}.cdx.json"
            list_what_it_needs(python, bill, version)
            install(python, f"{wheel}[local]")
            try_out(python.parent, folder / "shop", version)
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        for made in (sdist, wheel, bill):
            shutil.copy(made, DIST)
            say(f"dist/{made.name}")


def say(line: str) -> None:
    print(line, flush=True)


def run(*command: str | Path, cwd: Path = ROOT, environ: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**os.environ, **(environ or {})}, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise Wrong(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """An sdist of what is committed, and the wheel made of that."""
    tree, made = folder / "tree", folder / "made"
    at = committed(tree)
    command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", made)
    run(*command, "--sdist", tree)
    (sdist,) = made.glob("*.tar.gz")
    pack_anew(sdist, int(at))
    run("tar", "-xf", sdist, "-C", folder)
    run(*command, "--wheel", folder / sdist.name.removesuffix(".tar.gz"), environ={"SOURCE_DATE_EPOCH": at})
    (wheel,) = made.glob("*.whl")
    return sdist, wheel


def committed(tree: Path) -> str:
    """What git has, in that folder; since when (seconds since 1970)."""
    tree.mkdir(parents=True)
    run("git", "archive", "--output", tree.with_suffix(".tar"), "HEAD")
    run("tar", "-xf", tree.with_suffix(".tar"), "-C", tree)
    return run("git", "log", "-1", "--format=%ct").strip()


def pack_anew(sdist: Path, at: int) -> None:
    """Without what setuptools leaves of this machine and this minute: owners, times, an order."""
    tarred = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=tarred, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.pax_headers = at, {}
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with sdist.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=at) as packed:
        packed.write(tarred.getvalue())


def refuse_differences(first: tuple[Path, Path], again: tuple[Path, Path]) -> None:
    for one, other in zip(first, again, strict=True):
        if one.read_bytes() != other.read_bytes():
            raise Wrong(f"{one.name} differs each time it is built")
    say("two builds are the same, byte for byte")


def check(sdist: Path, wheel: Path) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    # Alembic loads its revisions, whose names begin with a number, by their paths (W004).
    options = ("--no-config", "--ignore", "W004", "--toplevel", ",".join(PACKED))
    run(Path(sys.executable).parent / "check-wheel-contents", *options, wheel)
    with zipfile.ZipFile(wheel) as zipped:
        packed = {name for name in zipped.namelist() if ".dist-info/" not in name}
    known = set(run("git", "ls-tree", "-r", "--name-only", "HEAD", *PACKED).split())
    if packed != known:
        raise Wrong(f"{wheel.name} lacks {sorted(known - packed)} and should not have {sorted(packed - known)}")
    say(f"{wheel.name} has the engine's {len(packed)} files and no other")


@contextmanager
def new_environment(folder: Path) -> Iterator[Path]:
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    yield folder / "bin" / "python"


def install(python: Path, what: str) -> None:
    pins = python.parent / "pins.txt"  # without hashes, which a wheel of ours has not
    pins.write_text("\n".join(re.findall(r"^\S+==\S+", CONSTRAINTS.read_text(), re.MULTILINE)))
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--constraint", pins, what)


def list_what_it_needs(python: Path, bill: Path, version: str) -> None:
    """As pip installed it, with licences; nothing of this machine."""
    for origin in python.parent.parent.glob("lib/*/site-packages/celeriac-*/direct_url.json"):
        origin.unlink()
    run(
        sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", ROOT / "pyproject.toml", "--mc-type",
        "library", "--output-reproducible", "--output-format", "JSON", "--output-file", bill, python,
    )  # fmt: skip
    listed = json.loads(bill.read_text())
    listed["metadata"]["component"]["version"] = version
    bill.write_text(text := json.dumps(listed, indent=2))
    if told := [word for word in ("file:", str(ROOT), str(bill.parent), socket.gethostname()) if word in text]:
        raise Wrong(f"{bill.name} tells of this machine: {', '.join(told)}")
    say(f"{bill.name} lists {len(listed['components'])} components")


def try_out(programs: Path, project: Path, version: str) -> None:
    """As a user would: a new project's first task, on servers from wheels."""
    celeriac = programs / "celeriac"
    alone = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": ""} | dict.fromkeys(
        ("DATABASE_URL", "REDIS_URL"), ""
    )
    if not re.search(rf"\b{re.escape(version)}\b", run(celeriac, "--version", environ=alone)):
        raise Wrong(f"celeriac --version does not say {version}")
    run(celeriac, "--help", environ=alone)
    run(celeriac, "init", project, environ=alone)
    run(celeriac, "migrate", cwd=project, environ=alone)
    up = [str(celeriac), "up", "--concurrency", "1"]
    with (project / "up.log").open("wb") as log:
        stack = subprocess.Popen(up, cwd=project, env={**os.environ, **alone}, stdout=log, stderr=log)
        try:
            run(celeriac, "tasks", "enqueue", "sync", "store=7", "account=acme", cwd=project, environ=alone)
            wait_for_a_completed_task(celeriac, project, alone)
        finally:
            stack.send_signal(signal.SIGINT)
            ended = stack.wait(PATIENCE)
    if ended:
        raise Wrong(f"celeriac up ended with status {ended}\n{(project / 'up.log').read_text()}")
    say(f"installed alone, celeriac {version} migrates and completes a task")


def wait_for_a_completed_task(celeriac: Path, project: Path, alone: dict[str, str]) -> None:
    give_up = time.monotonic() + PATIENCE
    while '"report"' not in run(
        celeriac, "tasks", "list", "--status", "completed", "--json", cwd=project, environ=alone
    ):
        if time.monotonic() > give_up:
            raise Wrong(f"no task was completed in {PATIENCE:g} s\n{(project / 'up.log').read_text()}")
        time.sleep(0.2)


if __name__ == "__main__":
    try:
        main()
    except Wrong as wrong:
        sys.exit(f"{wrong}\nnothing was written to dist/")
