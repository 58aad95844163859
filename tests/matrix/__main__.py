"""`make matrix`: the engine's tests on each Postgres, Redis and Python there is, and a table of what ran.

    [MATRIX_POSTGRES=folder:folder MATRIX_REDIS=program:program] python -m tests.matrix [pytest's arguments]

It installs no server: it takes Debian's and those that are named. A Python other than this one gets an environment in
.cache/matrix.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from celeriac.store.migrate import OLDEST_POSTGRES
from celeriac.testing.servers import memory
from tests.matrix import ENGINE
from tests.matrix.servers import Postgres, Redis, found, postgreses, redises
from tests.processes import ROOT

PYTHONS = ("3.11", "3.12", "3.13", "3.14")

#: What the engine's tests import, or their configuration names; the whole of the extra `test` would take minutes.
NEEDED = ("hypothesis", "pytest", "pytest-cov", "pytest-rerunfailures", "pytest-timeout", "pytest-xdist")

#: What says which packages an environment gets.
SAID = ("pyproject.toml", "constraints.txt")

EMBEDDED = "18 (embedded)", "Valkey 9 (embedded)"

#: Others, from as old as may be: each with one Redis, as neither knows of the other.
INSTALLED = tuple(zip(range(OLDEST_POSTGRES, 18), ("Redis 7", "Valkey 8", "Redis 8"), strict=True))


class Missing(Exception):
    """The message says what to install."""


class Row(NamedTuple):
    python: str
    postgres: str
    redis: str
    run: Callable[[], tuple[bool, str]]


def main() -> int:
    lines = [("Python", "Postgres", "Redis", "tests")]
    good = True
    for row in rows():
        try:
            passed, came_to = row.run()
            good &= passed
        except Missing as missing:
            came_to = f"not run: {missing}"
        lines.append((row.python, row.postgres, row.redis, came_to))
        print(" | ".join(lines[-1]), flush=True)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print("\n" + "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines))
    return 0 if good else 1


def rows() -> Iterator[Row]:
    this = ".".join(map(str, sys.version_info[:2]))
    yield Row(this, *EMBEDDED, lambda: tests(sys.executable, {}, asked()))
    for major, redis in INSTALLED:
        yield Row(this, str(major), redis, lambda pair=(major, redis): on_installed(*pair))  # type: ignore[misc]
    for other in PYTHONS:
        if other != this:
            yield Row(other, *EMBEDDED, lambda other=other: tests(environment(other), {}, asked()))  # type: ignore[misc]


def asked() -> Sequence[str]:
    return sys.argv[1:] or ENGINE


def tests(python: str | Path, servers: Mapping[str, str], arguments: Sequence[str]) -> tuple[bool, str]:
    """Whether all is well, and what pytest says in the end."""
    environ = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    command = [str(python), "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", *arguments]
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, env={**environ, **servers}, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        print(done.stdout, flush=True)
    said = re.findall(r"\d+ (?:passed|failed|errors?)", done.stdout)
    return done.returncode == 0, f"{', '.join(said) or f'status {done.returncode}'} in {time.monotonic() - began:.0f} s"


def on_installed(major: int, redis: str) -> tuple[bool, str]:
    programs, program = postgreses().get(major), redises().get(redis)
    if programs is None:
        raise Missing(f"install Debian's package postgresql-{major}, or name a folder in MATRIX_POSTGRES")
    if program is None:
        raise Missing(f"no {redis} on the PATH, nor in MATRIX_REDIS")
    with started(programs, program) as servers:
        return tests(sys.executable, servers, asked())


@contextmanager
def started(programs: Path, program: Path) -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="celeriac-matrix-", dir=memory()) as name:
        folder = Path(name)
        folder.chmod(0o755)  # both run as another user than root
        database, redis = Postgres(folder / "postgres", programs), Redis(folder / "redis", program)
        try:
            database.start()
            redis.start()
            yield {"DATABASE_URL": database.url, "REDIS_URL": redis.url}
        finally:
            redis.stop()
            database.stop()


def environment(release: str, name: str | None = None, packages: Sequence[str] = ()) -> Path:
    """The Python of an environment with what the tests need; made anew where that has changed.

    `packages`: more of them, as pip takes them, whatever release of them the constraints name.
    """
    program = f"python{release}"
    asked = subprocess.run([program, "--version"], capture_output=True, check=False) if found(program) else None
    if asked is None or asked.returncode:
        raise Missing(f"no {program} on the PATH")
    folder = ROOT / ".cache" / "matrix" / (name or release)
    python = folder / "bin" / "python"
    needed = (*NEEDED, *packages)
    ready, asked_for = folder / ".ready", "".join([release, *((ROOT / name).read_text() for name in SAID), *needed])
    if not ready.exists() or ready.read_text() != asked_for:
        subprocess.run([program, "-m", "venv", "--clear", folder], check=True)
        constraints = folder / "constraints.txt"
        constraints.write_text(_without((ROOT / "constraints.txt").read_text(), packages))
        install = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(constraints)]
        subprocess.run([*install, "--editable", f"{ROOT}[local,api]", *needed], check=True)
        ready.write_text(asked_for)
    return python


def apart(release: str, name: str, packages: Sequence[str]) -> Path:
    """The Python of an environment that has these packages, and what they want, and nothing of the engine."""
    folder = ROOT / ".cache" / "matrix" / name
    ready = folder / ".ready"
    if not ready.exists() or ready.read_text() != " ".join((release, *packages)):
        subprocess.run([f"python{release}", "-m", "venv", "--clear", folder], check=True)
        subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages], check=True)
        ready.write_text(" ".join((release, *packages)))
    return folder / "bin" / "python"


def _without(constraints: str, packages: Sequence[str]) -> str:
    """The versions, without hashes and those of packages whose releases are said otherwise."""
    said = {_normalised(package.partition("==")[0]) for package in packages if "==" in package}
    pins = re.findall(r"^(\S+)(==\S+)", constraints, re.MULTILINE)
    return "".join(f"{name}{version}\n" for name, version in pins if _normalised(name) not in said)


def _normalised(name: str) -> str:
    """Return a package's name as an index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
