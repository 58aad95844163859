"""The cgroups of this process, of either version, and the number of CPUs that they allow it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def cgroups(controller: str, root: Path = ROOT, own: Path = OWN) -> Iterator[tuple[int, Path]]:
    """Yield version and folder of the process's own cgroup and of those around it, which may all limit it.

    /proc/self/cgroup has `0::/path` in version 2, `4:cpu,cpuacct:/path` in version 1, where each hierarchy is mounted
    under its controllers' names, or one of them.
    """
    for line in own.read_text().splitlines() if own.exists() else ():
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            yield from ((1, folder) for name in {controllers, controller} for folder in _around(root / name, path))
        elif number == "0":
            yield from ((2, folder) for folder in _around(root, path))


def _around(mounted: Path, path: str) -> Iterator[Path]:
    inner = PurePosixPath(path)
    yield from (mounted / str(folder).lstrip("/") for folder in (inner, *inner.parents))


def cpus(root: Path = ROOT, own: Path = OWN) -> float:
    """Return how many CPUs this process may use: those it may run on, or fewer by a cgroup's quota."""
    shares = (_share(version, folder) for version, folder in cgroups("cpu", root, own))
    runs_on = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(float(runs_on), *(share for share in shares if share is not None), float("inf"))


def _share(version: int, folder: Path) -> float | None:
    """Return a cgroup's quota in CPUs, None where it has none (docs.kernel.org, cgroup-v2 and sched-bwc)."""
    names = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    try:
        quota, period = " ".join((folder / name).read_text() for name in names).split()
    except (OSError, ValueError):
        return None
    return None if quota in ("max", "-1") else int(quota) / int(period)
