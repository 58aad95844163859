"""A role is checked where it is declared, and gives the same keys wherever its tasks are enqueued."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from celeriac.errors import ConfigurationError
from celeriac.roles.backoff import Backoff
from celeriac.roles.keys import ONE
from celeriac.roles.role import IN_CODE, Role, days
from celeriac.roles.rules import DURATIONS, FOREVER

NAN, INFINITE = float("nan"), float("inf")

INVALID: dict[str, list[Any]] = {
    "name": ["", "x" * 201, "a\x00b", "a\nb", "a,b", "\ud800", 5, None],
    "queues": ["build", ("a", "a"), ("a,b",), ("celeriac:tickets:build",), ["build"], ("other",) * 2],
    "queue": ["x" * 201, "a\x00b", "a,b", 5, "celeriac:tickets:build", "celeriac:adopting:build"],
    "fair_by": ["", "two words", 7, ("a", "b"), "{", "{a", "a}{", "{}", "{0}", "{a b}", "no name {{a}}", b"account"],
    "lock_by": [ONE, "", "a-b", 7.5, ["a"], "{a!x}", "{}:{a}"],
    "unique_by": ["", "a.b", {"a"}, "}{"],
    "unique_while": ["", "waiting", None, True],
    "priority": [-1_000_001, 1_000_001, 1.5, "high", None, True],
    "priority_range": [(5, 1), (0,), (0, 1, 2), [0, 100], (0, 1.5), (0, None), (-1_000_001, 0), 100, None],
    "batch_size": [0, -1, 1.5, "60", None, True],
    "window": [0, -1, 1.5, "60"],
    "every": [0, -1, NAN, INFINITE, "30", None, timedelta(0)],
    "prompt": [1, 0, "yes", None],
    "chunk": [0, -1, 1.5, "automatic", "", None, True, 10_001],
    "chunk_target": [0, -0.1, NAN, INFINITE, None],
    "max_retries": [-1, 1.5, "3", True],
    "max_rounds": [0, -1, 1.5, None],
    "round_delay": [-1, NAN, INFINITE, "30", None, timedelta(seconds=-1)],
    "timeout": [0, -1, NAN, INFINITE, "30", True, timedelta(0)],
    "hard_timeout": [0, -1, NAN, INFINITE],
    "stale_after": [0, 0.9, -1, NAN, INFINITE, None, timedelta.max],
    "max_losses": [0, -1, None],
    "wait_objective": [0, -1, NAN, "soon", timedelta.max],
    "memory_per_task": [0, -1, 1.5, "400"],
    "keep": [30, 0, "for ever", "", timedelta(seconds=-1), timedelta.max, True],
    "enabled_by": ["", "NOT A NAME", "A=1", 5, True],
    "adopt": [1, None, "yes"],
    "rate_limit": ["often", "10/d", -1, True, "1e9", float("nan"), [10]],
    "by_name": [1, None, "yes"],
    "sensitive": ["password", ["password"], ("password", 7), ("",), True],
    "aliases": ["webhook", ["webhook"], ("web,hook",), (7,), None],
}

VALID: dict[str, list[Any]] = {
    "name": ["x", "x" * 200, "shop.tasks.build", "größe ×2"],
    "queues": [(), ("build",)],
    "queue": ["", "shared"],
    "fair_by": [None, "account_id", "{a}:{b}", "{a.id}", "{a[0]:>{width}}", lambda arguments: arguments["a"]],
    "priority": [-1_000_000, 0, 1_000_000],
    "priority_range": [(0, 100), (0, 0), (-1_000_000, 1_000_000)],
    "every": [0.5, timedelta(minutes=5)],
    "unique_by": [ONE],
    "chunk": ["auto", 1, 10_000],
    "max_retries": [None, 0, 25],
    "round_delay": [0, timedelta(minutes=30)],
    "timeout": [None, 0.5, 3600],
    "keep": [None, FOREVER, days(30), timedelta(0)],
    "enabled_by": [None, "QM_INSTASITES"],
}


def shown(value: Any) -> str:
    """The same in every process: no address."""
    return "function" if callable(value) else repr(value)


def flat(cases: Mapping[str, list[Any]]) -> list[Any]:
    return [
        pytest.param(option, value, id=f"{option}={shown(value)}"[:40]) for option in cases for value in cases[option]
    ]


def role(**options: Any) -> Role:
    return Role(**({"name": "build"} | options))


# -- validation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "value"), flat(INVALID))
def test_an_invalid_value_is_refused_with_the_roles_name_the_value_and_what_would_be_right(
    option: str, value: Any
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        role(**{option: value})
    told = str(refused.value)
    assert told.startswith(f"role {value!r}: " if option == "name" else "role 'build': ")
    shown = value.total_seconds() if isinstance(value, timedelta) and option != "keep" else value
    assert f"{option}={shown!r}: give " in told


@pytest.mark.parametrize(("option", "value"), flat(VALID))
def test_a_valid_value_is_taken(option: str, value: Any) -> None:
    meant = value.total_seconds() if option in DURATIONS and isinstance(value, timedelta) else value
    meant = "build" if (option, value) == ("queue", "") else meant
    assert getattr(role(**{option: value}), option) == meant


def test_every_option_has_its_rule() -> None:
    unchecked = {"retry_for", "dont_retry_for", "backoff", "lane"}  # made by `declare` from Celery's names, and here
    assert {f.name for f in dataclasses.fields(Role)} - unchecked == set(INVALID)


@pytest.mark.parametrize("priority", [-1, 101])
def test_a_roles_own_priority_lies_in_its_range(priority: int) -> None:
    with pytest.raises(
        ConfigurationError, match=f"^role 'build': priority={priority}: give a whole number from 0 to 100"
    ):
        role(priority=priority, priority_range=(0, 100))


def test_durations_may_be_timedeltas_and_are_seconds_from_then_on() -> None:
    made = role(timeout=timedelta(minutes=2), stale_after=timedelta(hours=1), every=timedelta(seconds=5))
    assert (made.timeout, made.stale_after, made.every) == (120, 3600, 5)


def test_the_queue_has_the_roles_name_unless_told_otherwise() -> None:
    assert role().queue == "build"
    assert role(queue="shared").queue == "shared"


@pytest.mark.parametrize(
    ("value", "enabled"),
    [("false", False), ("0", False), (" No ", False), ("OFF", False), ("true", True), ("1", True), ("", True)],
)
def test_only_a_false_variable_switches_a_role_off(value: str, enabled: bool) -> None:
    assert role(enabled_by="QM").enabled({"QM": value}) is enabled


def test_a_role_declared_elsewhere_does_not_fail_for_a_variable_of_this_process() -> None:
    assert role(enabled_by="QM").enabled({"QM": "disabled"})


def test_a_role_is_on_without_a_variable() -> None:
    assert role(enabled_by="QM").enabled({})
    assert role().enabled({"QM": "false"})


# -- the definition others enqueue by ----------------------------------------------------------------------------------


def test_the_definition_tells_all_that_the_role_decides() -> None:
    made = role(
        fair_by="account_id", lock_by=lambda _: 1, unique_by="{a}:{b}", keep=days(2), timeout=5,
        backoff=Backoff(base=60, maximum=86_400, jitter=0.2), enabled_by="QM", queues=("build", "build-slow"),
    )  # fmt: skip
    told = made.definition()
    assert told["fair_by"] == "account_id"
    assert told["lock_by"] == IN_CODE
    assert told["unique_by"] == "{a}:{b}"
    assert told["keep"] == 172_800
    assert told["backoff"] == {"base": 60, "maximum": 86_400, "jitter": 0.2}
    assert (told["queue"], told["timeout"], told["enabled_by"]) == ("build", 5, "QM")
    assert told["queues"] == ["build", "build-slow"]
    in_code_only = {"name", "lane", "retry_for", "dont_retry_for", "by_name", "chunk_target", "aliases"}
    assert set(told) - {"window_by_measure"} == {f.name for f in dataclasses.fields(Role)} - in_code_only


@pytest.mark.parametrize("keep", [None, FOREVER, days(30)])
@pytest.mark.parametrize("backoff", [None, Backoff()])
def test_the_definition_is_json_that_postgres_takes(keep: Any, backoff: Any) -> None:
    told = role(keep=keep, backoff=backoff).definition()
    assert json.loads(json.dumps(told, allow_nan=False)) == told


@pytest.mark.parametrize(
    ("soft", "hard", "own", "time_limit", "grace"),
    [
        (None, None, None, None, 5),
        (60, None, None, 60, 5),
        (60, 300, None, 60, 240),
        (60, 61, None, 60, 1),
        (None, 300, None, 300, 0),
        (300, 60, None, 60, 0),
        (None, None, 20, None, 5),
        (60, 300, 20, 60, 280),
        (60, 300, 300, 60, 0),
        (60, 300, 900, 60, 5),
    ],
)
def test_a_declared_hard_limit_is_kept_and_the_grace_is_for_those_that_declare_none(
    soft: float | None, hard: float | None, own: float | None, time_limit: float | None, grace: float
) -> None:
    made = role(timeout=soft, hard_timeout=hard)
    assert (made.time_limit, made.grace(own, 5)) == (time_limit, grace)
