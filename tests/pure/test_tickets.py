"""How many rows share a ticket, and which are in those that lie in a queue."""

from __future__ import annotations

import base64
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac.dispatch.publish import MAX_ROWS, ids_in, rows_per_ticket, split

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


@given(st.lists(st.integers(), max_size=50, unique=True), st.integers(1, 20))
def test_split_gives_each_row_one_ticket_in_order_with_the_one_token(ids: list[int], size: int) -> None:
    tickets = split("build", "builds", dict.fromkeys(ids, 1), "token", size)
    assert [i for ticket in tickets for i in ticket.ids] == ids
    assert all(1 <= len(ticket.ids) <= size for ticket in tickets)
    assert {(t.role, t.queue, t.token) for t in tickets} <= {("build", "builds", "token")}


@given(st.dictionaries(st.integers(), st.integers(0, 4), max_size=50), st.integers(1, 20))
def test_a_row_that_was_lost_twice_shares_its_ticket_with_nobody(losses: dict[int, int], size: int) -> None:
    tickets = split("build", "builds", losses, "token", size)
    assert sorted(i for ticket in tickets for i in ticket.ids) == sorted(losses)
    for ticket in tickets:
        assert len(ticket.ids) == 1 or all(losses[i] < 2 for i in ticket.ids)
        assert len(ticket.ids) <= size


def entry(body: str) -> bytes:
    return json.dumps({"body": base64.b64encode(body.encode()).decode()}).encode()


DEEP = "[" * 100_000


@pytest.mark.parametrize("stray", [DEEP.encode(), entry(DEEP), b"", b"\xff", b"[]", entry("[]"), entry("[[1, [[]]]]")])
def test_what_is_no_ticket_hides_none_of_the_tickets_beside_it(stray: bytes) -> None:
    assert ids_in([entry('[["build", [1, 2], ""]]'), stray, entry('[["build", [3], ""]]')]) == {1, 2, 3}
