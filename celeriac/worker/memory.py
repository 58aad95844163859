"""The worker's memory limit and use, as they are measured by whatever would kill it first: kernel or container."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from celeriac.worker.cgroups import OWN, ROOT, cgroups

MB = 1024 * 1024


class Memory(Protocol):
    @property
    def limit_mb(self) -> float: ...

    def used_mb(self, processes: Iterable[psutil.Process]) -> float:
        """Return the memory that counts against the limit (MB); `processes` are the worker's own."""


@dataclass(frozen=True, slots=True)
class Processes:
    """The limit without a container: only the worker's own processes count."""

    limit_mb: float

    def used_mb(self, processes: Iterable[psutil.Process]) -> float:
        """Return the resident memory; near the limit the proportional one, which the kernel takes longer to count."""
        family = list(processes)
        resident = sum(map(resident_mb, family))
        return resident if resident < self.limit_mb / 2 else sum(map(proportional_mb, family))


@dataclass(frozen=True, slots=True)
class Files:
    """The names of a cgroup version's files (docs.kernel.org, admin-guide/cgroup-v2 and cgroup-v1/memory)."""

    limit: str
    usage: str
    inactive: str


V2 = Files("memory.max", "memory.current", "inactive_file")
V1 = Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A container's limit. Its working set counts: usage without the file cache that the kernel can drop."""

    folder: Path
    files: Files
    limit_mb: float

    def used_mb(self, processes: Iterable[psutil.Process]) -> float:  # noqa: ARG002
        usage = int((self.folder / self.files.usage).read_text())
        stat = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        return (usage - int(stat.get(self.files.inactive, 0))) / MB


def memory(limit_mb: float, root: Path = ROOT, own: Path = OWN) -> Memory:
    """Return `limit_mb` if it is set, else the narrowest cgroup's limit, else the machine's."""
    if limit_mb:
        return Processes(limit_mb)
    machine_mb = psutil.virtual_memory().total / MB
    limits = (_limit(version, folder) for version, folder in cgroups("memory", root, own))
    groups = (group for group in limits if group is not None and group.limit_mb < machine_mb)
    return min(groups, key=lambda group: group.limit_mb, default=Processes(machine_mb))


def _limit(version: int, folder: Path) -> Cgroup | None:
    files = V2 if version == 2 else V1
    try:
        limit = (folder / files.limit).read_text().strip()
    except OSError:
        return None
    return None if limit == "max" else Cgroup(folder, files, int(limit) / MB)


def proportional_mb(process: psutil.Process) -> float:
    """Return the process's memory with its share of shared pages: forked children share most of theirs."""
    try:
        full = process.memory_full_info()
        return float(getattr(full, "pss", full.rss) / MB)
    except psutil.AccessDenied:
        return resident_mb(process)
    except psutil.NoSuchProcess:
        return 0.0


def resident_mb(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss / MB)
    except psutil.Error:
        return 0.0


#: Python's default thresholds (new objects): any other was set on purpose and is left alone.
PYTHONS = (700, 2000)

#: The new threshold. A ticket's tasks make some thousands of objects, none of them garbage before they are settled.
YOUNG = 10_000


def collect_less_often() -> None:
    """Raise the garbage collector's threshold in this process and those it forks."""
    young, *older = gc.get_threshold()
    if young in PYTHONS:
        gc.set_threshold(YOUNG, *older)
