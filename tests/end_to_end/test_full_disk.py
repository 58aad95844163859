"""A full disk is the first thing that is named, and is over once there is room: Postgres has a small one of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.deploy.jail import can_be_had
from tests.end_to_end.staging import Staged, clean, stage
from tests.processes import until

#: Megabytes: what a fresh database and the log of a test need.
SIZE = 160


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    folder.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=777,size={SIZE}m", "disk", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Somebody's file takes what is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return ballast


@pytest.mark.skipif(not can_be_had(), reason="a disk is for root to make")
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """Nothing that is accepted is lost, and no process ends."""
    with small_disk(tmp_path / "disk") as disk, stage(tmp_path, data=disk) as staged:
        staged.is_well()
        staged.broken("hangs")
        staged.module.report.delay()
        until(lambda: staged.rows("SELECT FROM worker_tasks WHERE status = 'running'"), "it to run")
        ballast = fill(disk)
        staged.is_first("disk_full", "Postgres", "its disk is full: ", "No space left on device")
        ballast.unlink()
        staged.is_over("disk_full")
        clean(staged)
        assert ended_well(staged)


def ended_well(staged: Staged) -> bool:
    return (staged.worker.process.poll(), staged.beat.process.poll()) == (None, None)
