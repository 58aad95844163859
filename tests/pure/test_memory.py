"""Which memory limit holds for a worker, and what counts against it."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from celeriac.worker.cgroups import cpus
from celeriac.worker.memory import V1, V2, Cgroup, Processes, memory, proportional_mb, resident_mb
from celeriac.worker.resources import Mean, Meter
from tests.processes import until

MB = 1024 * 1024


class Kernel:
    """The cgroup files as a kernel shows them, below a folder."""

    def __init__(self, folder: Path, own: str) -> None:
        self.root = folder / "cgroup"
        self.own = folder / "own"
        self.own.write_text(own)

    def group(self, path: str, **files: str) -> None:
        folder = self.root / path
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name.replace("__", ".")).write_text(content + "\n")

    @property
    def memory(self) -> object:
        return memory(0, self.root, self.own)


@pytest.fixture
def v2(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path, "0::/pods/worker\n")


@pytest.fixture
def v1(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path, "5:cpu,cpuacct:/elsewhere\n4:memory:/docker/abc\n0::/\n")


def test_a_container_of_cgroup_2_is_held_to_its_memory_max(v2: Kernel) -> None:
    v2.group("pods/worker", memory__max=str(512 * MB), memory__current=str(300 * MB),
        memory__stat=f"anon 1\ninactive_file {44 * MB}\nslab 7")  # fmt: skip
    found = v2.memory
    assert found == Cgroup(v2.root / "pods/worker", V2, 512)
    assert found.used_mb([]) == 256


def test_the_narrowest_of_the_groups_around_it_counts(v2: Kernel) -> None:
    v2.group("pods", memory__max=str(256 * MB))
    v2.group("pods/worker", memory__max="max")
    assert v2.memory == Cgroup(v2.root / "pods", V2, 256)


def test_a_container_of_cgroup_1_is_held_to_its_limit_in_bytes(v1: Kernel) -> None:
    v1.group("memory/docker/abc", memory__limit_in_bytes=str(512 * MB), memory__usage_in_bytes=str(100 * MB),
        memory__stat=f"cache 9\ntotal_inactive_file {36 * MB}")  # fmt: skip
    found = v1.memory
    assert found == Cgroup(v1.root / "memory/docker/abc", V1, 512)
    assert found.used_mb([]) == 64


def test_a_group_that_is_out_of_view_is_looked_for_at_the_root(v1: Kernel) -> None:
    """In a container the mount shows its own group as the root, and the path may be the host's."""
    v1.group("memory", memory__limit_in_bytes=str(128 * MB))
    assert v1.memory == Cgroup(v1.root / "memory/", V1, 128)


HALF = {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}


@pytest.mark.parametrize(
    ("own", "path", "files"),
    [
        ("0::/pods/worker\n", "pods", {"cpu.max": "50000 100000"}),
        ("5:cpu,cpuacct:/docker/abc\n0::/\n", "cpu,cpuacct/docker", HALF),
        ("5:cpu,cpuacct:/docker/abc\n", "cpu", HALF),
    ],
)  # fmt: skip
def test_a_worker_has_the_share_of_the_cpus_that_a_group_around_it_allows(
    tmp_path: Path, own: str, path: str, files: dict[str, str]
) -> None:
    kernel = Kernel(tmp_path, own)
    assert cpus(kernel.root, kernel.own) == len(os.sched_getaffinity(0))
    kernel.group(path, **files)
    assert cpus(kernel.root, kernel.own) == 0.5


@pytest.mark.parametrize("quota", ["max 100000", "6400000 100000"])
def test_no_quota_or_a_wide_one_is_the_cpus_that_it_may_run_on(v2: Kernel, quota: str) -> None:
    v2.group("pods/worker", **{"cpu.max": quota})
    assert cpus(v2.root, v2.own) == len(os.sched_getaffinity(0))


def test_no_limit_is_the_machines(v1: Kernel, v2: Kernel, tmp_path: Path) -> None:
    v1.group("memory", memory__limit_in_bytes="9223372036854771712")
    machine = Processes(psutil.virtual_memory().total / MB)
    assert v1.memory == memory(0, tmp_path / "nothing", tmp_path / "no file") == machine


def test_a_limit_that_is_set_wins(v2: Kernel) -> None:
    v2.group("pods/worker", memory__max=str(512 * MB))
    assert memory(100, v2.root, v2.own) == Processes(100)


def test_without_a_container_the_workers_processes_count_near_the_limit_by_their_share_of_shared_pages() -> None:
    own = psutil.Process()
    resident, share = resident_mb(own), proportional_mb(own)
    assert 0 < share <= resident * 1.01
    assert Processes(resident * 10).used_mb([own]) == pytest.approx(resident, rel=0.05)
    assert Processes(resident).used_mb([own, own]) == pytest.approx(2 * share, rel=0.05)


def test_a_mean_is_over_the_period_and_a_burst_at_the_start_does_not_fill_it() -> None:
    mean = Mean(10)
    assert mean.rate(5, now=0) == 0
    assert mean.rate(7, now=1) == pytest.approx(0.2)
    assert mean.rate(15, now=10) == pytest.approx(1)
    assert mean.rate(15, now=15) == pytest.approx(8 / 14)
    assert mean.rate(15, now=25) == 0
    assert mean.rate(3, now=30) == 0, "a count that falls, because a process got lost, is no negative rate"


def test_a_busy_process_is_seen() -> None:
    meter = Meter(memory(0), period=0.1)
    meter.read()
    until(lambda: sum(range(5_000_000)) and meter.read().cpu > 0.1, "the loop to be noticed")


def test_what_is_measured_is_what_a_heartbeat_tells() -> None:
    described = Meter(memory(0), 10).read().described()
    assert list(described) == [
        "memory_mb", "memory_total_mb", "memory_rss_mb", "memory_percent", "cpu_user_ms", "cpu_system_ms",
        "cpu_percent",
    ]  # fmt: skip
    assert 0 < described["memory_rss_mb"] < described["memory_total_mb"]
    assert described["cpu_user_ms"] > 0
