"""Two tiers of tests, and where a run's time goes.

`make test` runs every promise; `make nightly` the tests that are marked `nightly("why")`, which take their time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest

#: Seconds for the tests of each folder, summed over four processes on two cores, on a machine whose `pace` is 1: more
#: by half than they took, as a machine may be busy.
LIMITS = {
    "api": 160, "dashboard": 980, "demo": 30, "deploy": 400,
    "django_project": 160, "end_to_end": 1_200, "example": 100, "faults": 350,
    "local": 120, "outside": 180, "postgres": 2_200, "pure": 160, "sandbox": 20, "systems": 500, "typing": 30,
}  # fmt: skip

#: How much longer a folder may take before the run fails.
SLACK = 1.5

#: Processor seconds of `_count` on the machine that `LIMITS` was measured on.
REFERENCE = 0.06

SLOWEST = 10


def chosen(items: Iterable[pytest.Item], *, by_night: bool) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of this tier, and the others. Raises UsageError for a `nightly` mark without a reason."""
    tiers: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        mark = item.get_closest_marker("nightly")
        if mark and not (len(mark.args) == 1 and isinstance(mark.args[0], str) and mark.args[0]):
            raise pytest.UsageError(f'{item.nodeid}: say why it runs by night: @pytest.mark.nightly("why")')
        tiers[bool(mark) is by_night].append(item)
    return tiers[True], tiers[False]


def folder(nodeid: str) -> str:
    """The folder below `tests` that a test is in; the empty name for tests beside the folders."""
    path = nodeid.partition("::")[0].split("/")
    return path[1] if len(path) > 2 and path[0] == "tests" else ""


def seconds(reports: Iterable[Any]) -> Counter[str]:
    """Seconds by test: its setup, its call and its teardown, once more where it was run again."""
    found: Counter[str] = Counter()
    for report in reports:
        found[report.nodeid] += report.duration
    return found


def by_folder(tests: Mapping[str, float]) -> Counter[str]:
    """Seconds by folder."""
    found: Counter[str] = Counter()
    for nodeid, took in tests.items():
        found[folder(nodeid)] += took
    return found


def over(folders: Mapping[str, float], machine: float) -> list[str]:
    """A line for each folder that outgrew its limit by half, on a machine `machine` times as slow as `LIMITS`'."""
    return [
        f"tests/{name} took {took:.0f} s; its limit is {LIMITS.get(name, 0)} s (tests/tiers.py)"
        for name, took in sorted(folders.items())
        if name and took > SLACK * LIMITS.get(name, 0) * machine
    ]


def table(tests: Mapping[str, float], machine: float) -> Iterator[str]:
    """The slowest tests, and the time by folder beside its limit."""
    for nodeid, took in Counter(tests).most_common(SLOWEST):
        yield f"{took:7.1f} s  {nodeid}"
    yield ""
    for name, took in by_folder(tests).most_common():
        limit = f"  of {LIMITS[name] * machine:5.0f}" if name in LIMITS else ""
        yield f"{took:7.1f} s{limit}  tests/{name}"


@cache
def pace() -> float:
    """How much longer this machine computes than the one that `LIMITS` was measured on; at least 1."""
    return max(1.0, min(_count() for _ in range(5)) / REFERENCE)


def _count() -> float:
    """Processor seconds of a fixed piece of work."""
    began = time.process_time()
    sum(n * n % 7 for n in range(1_000_000))
    return time.process_time() - began
