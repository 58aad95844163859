"""The suites of the Celery that is installed: its wheel has none, its source distribution has."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import celery

from tests.processes import ROOT

CACHE = ROOT / ".cache"


def fetch() -> Path:
    """A folder with Celery's tests alone, so that they import the Celery that is installed."""
    release = f"celery-{celery.__version__}"
    folder = CACHE / release
    if not folder.exists():
        CACHE.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=CACHE) as temporary:
            download(Path(temporary))
            unpack(Path(temporary) / f"{release}.tar.gz", Path(temporary))
            (Path(temporary) / release).rename(folder)
    return folder


def download(into: Path) -> None:
    wanted = f"celery=={celery.__version__}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", wanted]
    subprocess.run([*pip, "--dest", str(into)], check=True)


def unpack(sdist: Path, into: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(into, list(tests_in(archive)), filter="data")


def tests_in(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for member in archive:
        if Path(member.name).parts[1:2] in (("t",), ("pyproject.toml",)):
            yield member
