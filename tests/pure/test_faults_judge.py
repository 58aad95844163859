"""The harness of faults judges by what was written down: each figure of a verdict tells what it is there for."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from faults.judge import STOPPED_WITHIN, Ended, Verdict, judge, missing, rate, recovery

Line = dict[str, Any]


def accepted(task: str, **more: Any) -> Line:
    return {"what": "accepted", "at": 0.0, "id": task, **more}


def ran(task: str, name: str, began: float, ended: float | None = None, **more: Any) -> list[Line]:
    begin = {"what": "begin", "at": began, "id": task, "run": name, "attempt": 0, "pid": 1, **more}
    return [begin, *([] if ended is None else [{"what": "end", "at": ended, "id": task, "run": name}])]


def done(run: str, *writes: str) -> Ended:
    return Ended("completed", run, writes)


FINE = [accepted("a"), *ran("a", "r1", 1, 2)]


def test_what_was_accepted_and_has_run_is_finished() -> None:
    found = judge(FINE, {"a": done("r1")})
    assert (found.accepted, found.finished, found.wrong, found.again) == (1, 1, {}, 0)


WRONG: dict[str, Callable[[], Verdict]] = {
    "lost": lambda: judge([accepted("a")], {}),
    "wrongly failed": lambda: judge(FINE, {"a": Ended("failed", None)}),
    "rolled back and run": lambda: judge([*ran("b", "r1", 1, 2), {"what": "rolled_back", "at": 3, "id": "b"}], {}),
    "overlapped": lambda: judge([accepted("a"), *ran("a", "r1", 1, 3), *ran("a", "r2", 2, 4)], {"a": done("r2")}),
    "keys overlapped": lambda: judge([*ran("a", "r1", 1, 3, key="k"), *ran("b", "r2", 2, 4, key="k")], {}),
    "stale accepted": lambda: judge([accepted("a"), *ran("a", "r1", 1, 2), *ran("a", "r2", 3, 4)], {"a": done("r1")}),
}


@pytest.mark.parametrize("what", WRONG)
def test_each_wrong_is_told_by_its_name(what: str) -> None:
    found = WRONG[what]()
    assert found.wrong == {what: 1}
    assert len(found.examples) == 1


def test_what_is_left_when_the_load_has_ended_is_lost_whoever_asked_for_it() -> None:
    """A call whose answer was lost may have come to a task: then that has to finish as well."""
    refused = {"what": "refused", "at": 1, "way": "one"}
    assert (judge([refused], {}, ["u"]).lost, judge([refused], {}).lost, judge([refused], {}).unknown) == (1, 0, 1)
    assert judge([accepted("a")], {}, ["a"]).lost == 1


def test_a_task_that_has_to_fail_is_finished_when_it_did() -> None:
    found = judge([accepted("a", expects="failed")], {"a": Ended("failed", None)})
    assert (found.finished, found.wrong) == (1, {})
    assert judge([accepted("a", expects="failed")], {"a": done("r1")}).failed == 1


def test_a_run_that_was_killed_has_no_end_to_overlap_with() -> None:
    found = judge([accepted("a"), *ran("a", "r1", 1), *ran("a", "r2", 2, 3)], {"a": done("r2")})
    assert (found.wrong, found.again) == ({}, 1)


def test_a_retry_is_another_attempt_and_no_run_again() -> None:
    lines = [*ran("a", "r1", 1), {"what": "broke", "at": 2, "id": "a", "run": "r1"}, *ran("a", "r2", 3, 4, attempt=1)]
    found = judge(lines, {"a": done("r2")})
    assert (found.again, found.wrong) == (0, {})


def test_who_was_frozen_cannot_know_and_is_counted_apart() -> None:
    runs = [*ran("a", "r1", 1, 9, pid=7), *ran("a", "r2", 5, 6, pid=8)]
    of_it, of_another = ({"what": "paused", "at": 2, "frozen": pid} for pid in (7, 8))
    found = judge([*runs, of_it], {"a": done("r2")})
    assert (found.wrong, found.paused) == ({}, 1)
    assert judge([*runs, of_another], {"a": done("r2")}).overlapped == 1


def test_who_was_frozen_before_its_handler_began_cannot_know_either() -> None:
    """It wakes up and begins, while who has the task by now runs it, or another of its key."""
    frozen = {"what": "paused", "at": 1, "frozen": 7}
    runs = [*ran("a", "r1", 2, 9), *ran("a", "late", 4, 5, pid=7)]
    found = judge([frozen, *runs], {"a": done("r1")})
    assert (found.wrong, found.paused) == ({}, 1)
    assert judge([frozen | {"at": 3}, *runs], {"a": done("r1")}).overlapped == 1
    keyed = [frozen, *ran("a", "r1", 2, 9, key="k"), *ran("b", "late", 4, 5, key="k", pid=7)]
    assert (judge(keyed, {}).keys_overlapped, judge(keyed, {}).paused) == (0, 1)


AWAKE = 3.0

#: Runs that overlap, or of which the last has no outcome, though one of their processes was frozen before.
EXCUSED_FOR: dict[str, Callable[[float], Verdict]] = {
    "it began late": lambda at: judge(
        [*FROZEN, *ran("a", "r1", 2, at + 5), *ran("a", "late", at, at + 1, pid=7)], {"a": done("r1")}
    ),
    "another began": lambda at: judge(
        [*FROZEN, *ran("a", "slept", 0, at + 5, pid=7), *ran("a", "r1", at, at + 1)], {"a": done("r1")}
    ),
    "its key was another's": lambda at: judge(
        [*FROZEN, *ran("a", "r1", 2, at + 5, key="k"), *ran("b", "late", at, at + 1, key="k", pid=7)], {}
    ),
    "it was over by then": lambda at: judge(
        [*FROZEN, *ran("a", "r1", 2, 3), *ran("a", "late", at, at + 1, pid=7)], {"a": done("r1")}
    ),
}
FROZEN = [{"what": "paused", "at": 1, "frozen": 7}, {"what": "thawed", "at": AWAKE, "frozen": 7}]


@pytest.mark.parametrize("when", EXCUSED_FOR)
def test_who_was_thawed_has_to_know_soon(when: str) -> None:
    """What it does a while after it woke up is judged like all else, however often it was frozen."""
    assert EXCUSED_FOR[when](AWAKE + STOPPED_WITHIN / 2).wrong == {}
    assert EXCUSED_FOR[when](AWAKE + STOPPED_WITHIN + 1).wrong != {}


@pytest.mark.parametrize("writes", [("r1",), ("r1", "r2"), ("r2", "r2")])
def test_writes_of_another_run_or_twice_are_stale(writes: tuple[str, ...]) -> None:
    lines = [accepted("a"), *ran("a", "r1", 1, 2), *ran("a", "r2", 3, 4)]
    assert judge(lines, {"a": done("r2", *writes)}).stale == 1
    assert judge(lines, {"a": done("r2", "r2")}).stale == 0


def test_a_frozen_process_that_begins_as_it_wakes_has_made_nothing_stale() -> None:
    """Its outcome is refused; where it counts all the same, or nobody was frozen, the guard is missing."""
    frozen = {"what": "paused", "at": 1, "frozen": 7}
    lines = [accepted("a"), frozen, *ran("a", "r1", 2, 3), *ran("a", "late", 4, 5, pid=7)]
    assert judge(lines, {"a": done("r1", "r1")}).stale == 0
    assert judge(lines, {"a": done("late", "r1", "late")}).stale == 1
    assert judge([line for line in lines if line is not frozen], {"a": done("r1", "r1")}).stale == 1


def test_plain_messages_in_a_redis_that_was_emptied_are_counted_apart() -> None:
    plain = [accepted("p", way="plain")]
    assert (judge(plain, {}, wipes=True).lost, judge(plain, {}, wipes=True).wiped) == (0, 1)
    assert judge(plain, {}).lost == 1
    assert judge([*plain, *ran("p", "r1", 1)], {}, wipes=True).lost == 1


def test_a_call_that_met_an_open_unique_key_came_to_the_task_that_has_it() -> None:
    call = accepted("a", key="unique 1", is_new=None) | {"at": 1.5}
    assert judge([call, *ran("b", "r1", 1, 2, key="unique 1")], {"b": done("r1")}).wrong == {}
    assert judge([call, *ran("b", "r1", 0, 1, key="unique 1")], {"b": done("r1")}).lost == 1


def test_recovery_is_counted_until_the_rate_is_back() -> None:
    steady = [n / 10 for n in range(1000)]
    assert recovery(steady, 0, 10) == pytest.approx(0.0, abs=0.2)
    assert recovery([at for at in steady if at > 30], 0, 10) == pytest.approx(30, abs=0.3)
    assert recovery([n / 2 for n in range(200)], 0, 10) == math.inf
    assert rate(steady, 0, 50) == pytest.approx(10)


def test_an_instant_that_nobody_ran_is_missing() -> None:
    first, second, third, fourth = (datetime(2031, 1, 1, 0, 0, n, tzinfo=UTC) for n in range(4))
    assert missing([third, first, second, first], 1) == 0
    assert missing([first, fourth], 1) == 2
