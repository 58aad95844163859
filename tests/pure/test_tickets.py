"""How many rows share a ticket, and which are in those that lie in a queue."""

from __future__ import annotations

import base64
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac.dispatch.claim import Taken
from celeriac.dispatch.publish import MAX_ROWS, rows_per_ticket, split, tokens_in

SECONDS = st.floats(0, 10_000)
ROWS, SLOTS = st.integers(1, 5000), st.integers(0, 64)


@given(st.integers(1, 500), SECONDS | st.none(), ROWS, SLOTS)
def test_a_number_is_taken_at_its_word(chunk: int, seconds: float | None, rows: int, slots: int) -> None:
    assert rows_per_ticket(chunk, seconds, 0.2, rows, slots) == chunk


@given(ROWS, SLOTS)
def test_tasks_never_measured_get_a_ticket_each(rows: int, slots: int) -> None:
    assert rows_per_ticket("auto", None, 0.2, rows, slots) == 1


@given(SECONDS, st.floats(0.01, 60), ROWS, SLOTS)
def test_a_ticket_is_worth_its_target_at_most_unless_one_task_is_more(
    seconds: float, target: float, rows: int, slots: int
) -> None:
    size = rows_per_ticket("auto", seconds, target, rows, slots)
    assert 1 <= size <= MAX_ROWS
    assert size == 1 or size * seconds <= target * 1.000001


@given(SECONDS, ROWS, st.integers(1, 64))
def test_nobody_gets_more_than_an_even_share_while_others_wait_for_work(seconds: float, rows: int, slots: int) -> None:
    assert rows_per_ticket("auto", seconds, 60, rows, slots) <= math.ceil(rows / slots)


def test_quick_tasks_share_and_slow_ones_do_not() -> None:
    assert rows_per_ticket("auto", 0.001, 0.2, rows=1000, slots=2) == 200
    assert rows_per_ticket("auto", 0.05, 0.2, rows=1000, slots=2) == 4
    assert rows_per_ticket("auto", 30, 0.2, rows=1000, slots=2) == 1
    assert rows_per_ticket("auto", 0, 0.2, rows=10_000, slots=0) == MAX_ROWS


def taken(losses: dict[int, int]) -> list[Taken]:
    return [Taken(task, "", lost) for task, lost in losses.items()]


@given(st.lists(st.integers(), max_size=50, unique=True), st.integers(1, 20))
def test_split_gives_each_task_one_ticket_in_order(ids: list[int], size: int) -> None:
    tickets = split(taken(dict.fromkeys(ids, 1)), size)
    assert [task.id for ticket in tickets for task in ticket] == ids
    assert all(1 <= len(ticket) <= size for ticket in tickets)


@given(st.dictionaries(st.integers(), st.integers(0, 4), max_size=50), st.integers(1, 20))
def test_a_task_that_was_lost_twice_shares_its_ticket_with_nobody(losses: dict[int, int], size: int) -> None:
    tickets = split(taken(losses), size)
    assert sorted(task.id for ticket in tickets for task in ticket) == sorted(losses)
    for ticket in tickets:
        assert len(ticket) == 1 or all(task.losses < 2 for task in ticket)
        assert len(ticket) <= size


def entry(body: str) -> bytes:
    return json.dumps({"body": base64.b64encode(body.encode()).decode()}).encode()


DEEP = "[" * 100_000


@pytest.mark.parametrize("stray", [DEEP.encode(), entry(DEEP), b"", b"\xff", b"[]", entry("[]"), entry("[[1, [[]]]]")])
def test_what_is_no_ticket_hides_none_of_the_tickets_beside_it(stray: bytes) -> None:
    assert tokens_in([entry('[["build", [1, 2], "a"]]'), stray, entry('[["build", [3], "b"]]')]) == {"a", "b"}
