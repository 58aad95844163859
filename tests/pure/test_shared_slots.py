"""A role that shares workers with long tasks of others waits for their turns, and one that does not waits for none."""

from __future__ import annotations

from celeriac.insights.fleet.shared_slots import AtWork, Serving, Turn, turn_of_each

SHORT, LONG = AtWork("short", "short", 0.2), AtWork("long", "long", 60.0)


def test_a_slot_is_free_each_time_that_one_of_all_ends() -> None:
    both = Serving(("short", "long"), 4)
    assert turn_of_each([SHORT, LONG], [both])["short"] == Turn(15.0, 4)
    assert turn_of_each([LONG], [both, both])["short"] == Turn(7.5, 8)
    assert turn_of_each([LONG], [both]).get("long") is None, "its own tasks are in its own window"


def test_workers_of_its_own_have_no_turns_of_others() -> None:
    assert turn_of_each([SHORT, LONG], [Serving(("short",), 4), Serving(("long",), 4)]) == {}


def test_what_shares_one_worker_and_has_another_of_its_own_waits_for_nobody() -> None:
    both = Serving(("short", "long"), 1)
    assert turn_of_each([SHORT, LONG], [both, Serving(("short",), 100)]).keys() == {"long"}


def test_each_worker_has_turns_of_those_beside_it_alone() -> None:
    longer = AtWork("longer", "longer", 30.0)
    beside = [Serving(("short", "long"), 1), Serving(("short", "longer"), 1)]
    assert turn_of_each([LONG, longer], beside)["short"] == Turn(20.0, 2), "three starts a minute"


def test_roles_of_one_queue_share_its_turn() -> None:
    alike = [LONG, AtWork("longer", "long", 90.0)]
    assert turn_of_each(alike, [Serving(("short", "long"), 1)]) == {"short": Turn(90.0, 1)}


def test_a_newcomer_has_a_turn_of_others_before_each_start_of_its_own_role() -> None:
    turn = Turn(15.0, 4)
    assert [turn.wait(window) for window in (4, 5, 24)] == [15.0, 15.0, 300.0]
