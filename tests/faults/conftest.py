"""The proof under load. `make proof` runs it at full size; `make test` in a short form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.beats import RECORD, Fleet
from tests.processes import Rows


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`@pytest.mark.sized("beats", full=[2, 3], short=[2])`: the values that fit this run."""
    for mark in metafunc.definition.iter_markers("sized"):
        metafunc.parametrize(mark.args[0], mark.kwargs["full" if metafunc.config.getoption("--full") else "short"])


@pytest.fixture
def sized(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """`sized(full, short)`: the one that fits this run."""
    full = bool(request.config.getoption("--full"))
    return lambda at_full, short: at_full if full else short


@pytest.fixture
def recorded(database_url: str) -> Iterator[Rows]:
    """The test's database, which records what is enqueued."""
    rows = Rows(database_url)
    rows(RECORD)
    yield rows
    rows.close()


@pytest.fixture
def fleet(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(database_url, redis_url, tmp_path) as fleet:
        yield fleet
