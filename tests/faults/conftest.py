"""The proof under load. `make proof` runs it at full size; `make test` in a short form."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def sized(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """`sized(full, short)`: the one that fits this run."""
    full = bool(request.config.getoption("--full"))
    return lambda at_full, short: at_full if full else short
