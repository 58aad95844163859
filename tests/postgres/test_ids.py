"""Ids that grow with time, made by Python and by SQL alike."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import time
from uuid import RFC_4122, UUID

import pytest

from celeriac.store.ids import fresh_id, fresh_ids
from tests.processes import Rows

MAKERS = pytest.mark.parametrize("maker", ["python", "sql"])


@pytest.fixture
def make(maker: str, rows: Rows) -> Callable[[], str]:
    return fresh_id if maker == "python" else lambda: str(rows("SELECT celeriac.fresh_id()")[0][0])


@MAKERS
def test_it_is_a_uuid_of_version_7_that_tells_its_time(make: Callable[[], str]) -> None:
    before = time()
    made = make()
    uuid = UUID(made)
    assert (str(uuid), uuid.version, uuid.variant) == (made, 7, RFC_4122)
    assert before - 0.002 <= (uuid.int >> 80) / 1000 <= time()


def test_sql_is_never_ahead_of_its_own_clock(rows: Rows) -> None:
    """By half a millisecond, were it rounded."""
    made = rows("SELECT celeriac.fresh_id(), extract(epoch FROM clock_timestamp()) * 1000 FROM generate_series(1, 200)")
    assert [(made, now) for made, now in made if (UUID(made).int >> 80) > now] == []


@MAKERS
def test_all_the_rest_is_drawn(make: Callable[[], str]) -> None:
    """Each of the 74 bits is now 0, now 1."""
    drawn = [UUID(make()).int & (0xFFF << 64 | (1 << 62) - 1) for _ in range(200)]
    ones, zeros = 0, 0
    for number in drawn:
        ones, zeros = ones | number, zeros | ~number
    assert ones.bit_count() == 74
    assert zeros & ones == ones
    assert len(set(drawn)) == 200


def test_those_of_a_bulk_are_in_their_order_and_no_two_are_the_same() -> None:
    made = fresh_ids(1000)
    assert made == sorted(set(made))
    assert {UUID(one).version for one in made} == {7}
    assert fresh_ids(0) == []


def test_a_forked_process_draws_others() -> None:
    reading, writing = os.pipe()
    fresh_id()
    if (child := os.fork()) == 0:
        os.write(writing, fresh_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert UUID(os.read(reading, 36).decode()).int & (1 << 62) - 1 != UUID(fresh_id()).int & (1 << 62) - 1
    os.close(reading)
    os.close(writing)
