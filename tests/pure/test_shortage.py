"""Whether file descriptors are missed for a moment or for good."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from celeriac.run import descriptors, shared
from celeriac.worker.shortage import Shortage


class Process:
    """A process with tasks under way, short of descriptors or not."""

    def __init__(self) -> None:
        self.few, self.running, self.closed = True, 0, 0

    def close_idle(self) -> None:
        self.closed += 1


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    made = Process()
    monkeypatch.setattr(descriptors, "has_few", lambda: made.few)
    monkeypatch.setattr(shared, "in_flight", lambda: [SimpleNamespace()] * made.running)
    return made


def looks(shortage: Any) -> bool:
    shortage.look()
    return bool(shortage.is_leak())


def test_a_leak_is_seen_twice_in_a_row(process: Process) -> None:
    """One look of a parent, which runs nothing, met what a moment later was closed."""
    shortage = Shortage(process)  # type: ignore[arg-type]
    seen = []
    for process.few in (True, False, True, True):
        seen.append(looks(shortage))
    assert (seen, process.closed) == ([False, False, False, True], 2), "idle connections are closed once a shortage"


def test_half_of_what_had_them_has_ended_before_it_is_a_leak(process: Process) -> None:
    shortage = Shortage(process)  # type: ignore[arg-type]
    seen = []
    for process.running in (8, 8, 5, 4, 4):
        seen.append(looks(shortage))
    assert (seen, process.closed) == ([False, False, False, False, True], 1)
