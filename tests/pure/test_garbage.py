"""A worker looks for garbage less often, unless its application has said how often."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from celeriac.worker.memory import PYTHONS, YOUNG, collect_less_often


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("young", PYTHONS)
def test_what_python_comes_with_is_too_often(young: int) -> None:
    gc.set_threshold(young, 10, 7)
    collect_less_often()
    assert gc.get_threshold() == (YOUNG, 10, 7)


@pytest.mark.parametrize("young", [0, 500, 5_000, 50_000])
def test_what_the_application_has_set_stays(young: int) -> None:
    gc.set_threshold(young, 10, 10)
    collect_less_often()
    assert gc.get_threshold() == (young, 10, 10)
