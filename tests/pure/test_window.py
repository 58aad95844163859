"""A window by measure: as many tasks as the slots run and will begin within about a second."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from celeriac.dispatch.window import AHEAD, FIRST, may_claim, refill_below, window
from celeriac.roles.role import WIDEST, Role

SLOTS = st.integers(1, 10_000)
SECONDS = st.floats(1e-7, 100_000)
ROLE = Role(name="work")


@given(SLOTS, SECONDS)
def test_what_waits_claimed_begins_within_about_a_second(slots: int, seconds: float) -> None:
    waiting = window(ROLE, slots, seconds) - slots
    assert waiting <= max(1, slots * AHEAD / seconds + 1)


@given(SLOTS, SECONDS)
def test_no_slot_is_idle_for_want_of_claimed_tasks(slots: int, seconds: float) -> None:
    assert window(ROLE, slots, seconds) >= slots
    assert refill_below(ROLE, slots, seconds) >= min(slots, WIDEST * 3 // 4)


def test_tasks_that_take_no_time_get_the_widest_window() -> None:
    assert window(ROLE, 1, 20e-6) == window(ROLE, 2, 0.0) == WIDEST
    assert may_claim(ROLE, 0, 2, 20e-6) == ROLE.batch_size


def test_what_nobody_has_measured_is_claimed_with_caution() -> None:
    assert window(ROLE, 0, None) == window(ROLE, 4, None) == FIRST
    assert window(ROLE, 100, None) == 200


def test_without_a_worker_a_few_are_claimed() -> None:
    assert window(ROLE, 0, 3600) == FIRST


def test_beats_pass_claims_what_begins_until_its_next_one() -> None:
    assert window(Role(name="batch", prompt=False, every=30), 4, 1.0) == 4 + 4 * 31


@given(SLOTS, st.none() | SECONDS, st.integers(1, 1_000_000))
def test_a_window_that_is_said_is_the_window(slots: int, seconds: float | None, said: int) -> None:
    assert window(Role(name="work", window=said), slots, seconds) == said


def test_an_older_release_takes_the_widest_for_the_window() -> None:
    assert ROLE.definition()["window"] == WIDEST
    assert ROLE.definition()["window_by_measure"] is True
    said = Role(name="work", window=7).definition()
    assert (said["window"], said["window_by_measure"]) == (7, False)
