"""What the children of a pool run under a hard limit, as their parent reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from billiard.process import current_process

from celeriac.run import shared
from celeriac.run.shared import HardLimit


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """That of a process in a pool which grew to hundreds, and shrank."""
    monkeypatch.setattr(current_process(), "index", 500, raising=False)
    yield 500
    shared.limiting(500)(0, 0.0)


def test_a_process_is_found_whatever_its_number_in_the_pool(place: int) -> None:
    assert shared.place() == place
    limit = shared.limiting(shared.place())
    limit(7, 12.5)
    assert shared.limits([os.getpid()]) == [HardLimit(os.getpid(), 7, 12.5)]
    assert shared.limits([os.getpid() + 1]) == []
    limit(0, 0.0)
    assert shared.limits([os.getpid()]) == []
