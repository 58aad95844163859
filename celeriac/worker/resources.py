"""The resources that the worker's processes use: memory and its limit, CPU as a mean over a period."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import Connection

from celeriac.run import lease
from celeriac.run.reported import backoff, sample
from celeriac.worker.cgroups import cpus
from celeriac.worker.memory import Memory, resident_mb


@dataclass(frozen=True, slots=True)
class Usage:
    """A measurement. `cpu`: a share of the CPUs that the worker may use; `cpu_user`, `cpu_system`: seconds in total."""

    memory_mb: float = 0.0
    memory_total_mb: float = 1.0
    memory_rss_mb: float = 0.0
    cpu: float = 0.0
    cpu_user: float = 0.0
    cpu_system: float = 0.0

    @property
    def memory(self) -> float:
        return self.memory_mb / self.memory_total_mb

    def described(self) -> dict[str, Any]:
        """Return it as a heartbeat has it."""
        return {
            "memory_mb": round(self.memory_mb, 1),
            "memory_total_mb": round(self.memory_total_mb, 1),
            "memory_rss_mb": round(self.memory_rss_mb, 1),
            "memory_percent": round(self.memory * 100, 1),
            "cpu_user_ms": round(self.cpu_user * 1000),
            "cpu_system_ms": round(self.cpu_system * 1000),
            "cpu_percent": round(self.cpu * 100, 1),
        }


class Mean:
    """The mean rate of a growing count over the last `period` seconds."""

    def __init__(self, period: float) -> None:
        self.period = period
        self.seen: deque[tuple[float, float]] = deque()

    def rate(self, count: float, now: float) -> float:
        self.seen.append((now, count))
        while len(self.seen) > 2 and self.seen[1][0] <= now - self.period:
            self.seen.popleft()
        since, before = self.seen[0]
        return max(0.0, count - before) / max(now - since, self.period)


class Meter:
    """Measures the process that creates it, with all its descendants."""

    def __init__(self, memory: Memory, period: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.memory = memory
        self.cpus = cpus()
        self.mean = Mean(period)
        self.clock = clock
        self.root = psutil.Process()

    def read(self) -> Usage:
        processes = [self.root, *descendants(self.root)]
        user, system = _cpu_seconds(processes)
        return Usage(
            memory_mb=self.memory.used_mb(processes),
            memory_total_mb=self.memory.limit_mb,
            memory_rss_mb=sum(map(resident_mb, processes)),
            cpu=min(1.0, self.mean.rate(user + system, self.clock()) / self.cpus),
            cpu_user=user,
            cpu_system=system,
        )


def descendants(root: psutil.Process) -> list[psutil.Process]:
    """Return all descendants of the process, from Linux' lists of children if it has these: psutil reads every process
    of the machine.
    """
    try:
        return list(map(psutil.Process, _children(root.pid)))
    except (OSError, psutil.NoSuchProcess):  # no lists, or a process has just ended
        return root.children(recursive=True)


def _children(pid: int) -> Iterator[int]:
    """Yield the pids of all descendants. Raises OSError if the kernel keeps no such lists, or a process has ended."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            yield int(child)
            yield from _children(int(child))


def _cpu_seconds(processes: Sequence[psutil.Process]) -> tuple[float, float]:
    """Return user and system seconds, with those of ended children: the sum must not fall when one ends."""
    user = system = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        user += times.user + getattr(times, "children_user", 0.0)
        system += times.system + getattr(times, "children_system", 0.0)
    return user, system


#: Seconds between two samples.
EVERY = 60.0


class Sampler:
    """Writes one worker's samples with its heartbeats: one a minute, and one more if a back-off begins."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._last: tuple[float, bool] | None = None

    def report(self, connection: Connection, worker: lease.WorkerState) -> str | None:
        """Write the worker's heartbeat, with a sample if one is due; return its status, as `lease.report` does."""
        minute, backs_off = self.clock() // EVERY, backoff(worker.resources) is not None
        if self._last is None or self._last[0] != minute or (backs_off and not self._last[1]):
            sample(connection, worker.worker_id, worker.resources)
            self._last = (minute, backs_off)
        return lease.report(connection, worker)
