"""What a tick decides is a function of the row and the time: nothing doubled or out of order, the next one ahead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac import ConfigurationError
from celeriac.schedules.decide import CHANGEABLE, Entry, PlannedJob, decide, every, merged, overridden, variable

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def job(**given: Any) -> PlannedJob:
    fields = {
        "id": 1, "name": "job", "kind": "task", "target": "work", "kwargs": {}, "options": {},
            "cron_expression": "0 * * * *",
        "timezone": "UTC", "priority": None, "misfire": "once", "misfire_grace": 60.0, "overlap": "allow",
        "next_run_at": NOON, "last_run_at": None, "planned_as": "UTC|0 * * * *", "last_task_id": None,
    }  # fmt: skip
    return PlannedJob(**fields | given)


def entry(**given: Any) -> Entry:
    return Entry(**{"name": "job", "kind": "task", "target": "work", "cron_expression": "@hourly"} | given)


expressions = st.sampled_from(["0 * * * *", "*/7 * * * *", "*/30 * * * * *", "@every 90s", "15 3 * * mon"])
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])


@given(
    expressions, zones, st.sampled_from(["skip", "once", "all"]), st.floats(1, 7200),
    st.floats(-3600, 200_000), st.integers(0, 400),
)  # fmt: skip
def test_each_instant_is_run_or_left_out_once_whenever_the_ticks_come(
    expression: str, zone: str, misfire: str, grace: float, late: float, days: int
) -> None:
    start = NOON + timedelta(days=days)
    row = job(cron_expression=expression, timezone=zone, misfire=misfire, misfire_grace=grace, next_run_at=start,
        planned_as=f"{zone}|{expression}")  # fmt: skip
    now, ran = start + timedelta(seconds=late), []
    while True:
        plan = decide(row, now)
        ran += plan.run
        row = job(cron_expression=expression, timezone=zone, misfire=misfire, misfire_grace=grace,
            next_run_at=plan.next_run_at, planned_as=f"{zone}|{expression}")  # fmt: skip
        if plan.next_run_at > now:
            break
    assert ran == sorted(set(ran))
    assert all(start <= instant <= now for instant in ran)
    horizon = now - timedelta(seconds=grace)
    missed = [instant for instant in ran if instant < horizon]
    assert decide(row, now).run == ()
    if misfire == "skip":
        assert missed == []
    if misfire == "once":
        assert missed in ([], [start])


def test_missed_instants_by_policy() -> None:
    late = NOON + 3 * HOUR + timedelta(minutes=10)
    policies = {m: decide(job(misfire=m), late).run for m in ("skip", "once", "all")}
    assert policies == {"skip": (), "once": (NOON,), "all": tuple(NOON + n * HOUR for n in range(4))}


def test_in_time_is_each_instant() -> None:
    second = timedelta(seconds=1)
    plan = decide(job(cron_expression="@every 1s", planned_as="UTC|@every 1s", misfire="skip"), NOON + 3 * second)
    assert plan.run == tuple(NOON + n * second for n in range(4))
    assert plan.next_run_at == NOON + 4 * second


@pytest.mark.parametrize("change", [datetime(2025, 3, 29, 12, tzinfo=UTC), datetime(2025, 10, 25, 12, tzinfo=UTC)])
def test_on_a_day_whose_clocks_are_set_a_daily_run_comes_once(change: datetime) -> None:
    daily = {"cron_expression": "30 2 * * *", "timezone": "Europe/Berlin", "planned_as": "Europe/Berlin|30 2 * * *"}
    first = decide(job(next_run_at=change, **daily), change).next_run_at
    second = decide(job(next_run_at=first, **daily), first).next_run_at
    assert first - change < timedelta(hours=14)
    assert timedelta(hours=22) < second - first < timedelta(hours=26)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"cron_expression": "61 * * * *"}, "61"),
        ({"timezone": "Mars/Olympus"}, "Mars"),
        ({"misfire": "twice"}, "give one of skip, once, all"),
        ({"overlap": "maybe"}, "give one of skip, allow"),
        ({"misfire_grace": -1.0}, "0 s to a year"),
        ({"misfire": "skip", "misfire_grace": 0.0}, "at least 1 s"),
    ],
)
def test_what_cannot_be_is_told_with_the_schedules_name(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match="schedule 'job'") as refused:
        entry(**wrong).check()
    assert says in str(refused.value)


def row_of(of: Entry, **changes: Any) -> dict[str, Any]:
    return of.declared() | {"declared": of.declared()} | changes


def test_the_config_takes_effect_but_for_what_an_operator_changed() -> None:
    row = row_of(entry(), enabled=False, priority=70)
    now = merged(entry(cron_expression="@daily", priority=5, misfire="all"), row)
    assert (now["cron_expression"], now["misfire"]) == ("@daily", "all")
    assert (now["enabled"], now["priority"]) == (False, 70)


def test_what_an_operator_changed_back_follows_the_config_again() -> None:
    assert merged(entry(priority=9), row_of(entry(priority=5)))["priority"] == 9


@given(st.sets(st.sampled_from(CHANGEABLE)))
def test_reading_the_same_config_again_changes_nothing(changed: set[str]) -> None:
    operators = entry(cron_expression="@weekly", timezone="Asia/Tokyo", enabled=False, priority=1, misfire="all",
        misfire_grace=5.0, overlap="allow", description="theirs", kwargs={"n": 1})  # fmt: skip
    row = row_of(entry(), **{name: getattr(operators, name) for name in changed})
    assert merged(entry(), row) == {name: row[name] for name in CHANGEABLE}


def test_an_environment_variable_changes_a_default() -> None:
    assert variable("sweep lost_tickets") == "CELERIAC_SCHEDULE_SWEEP_LOST_TICKETS"
    assert overridden(entry(), {"CELERIAC_SCHEDULE_JOB": "*/5 * * * *"}) == {"cron_expression": "*/5 * * * *"}
    assert overridden(entry(), {"CELERIAC_SCHEDULE_JOB": "Off"}) == {"enabled": False}
    assert overridden(entry(), {}) == {}


@pytest.mark.parametrize(("seconds", "text"), [(30.0, "@every 30s"), (0.2, "@every 0.2s"), (86400.0, "@every 86400s")])
def test_seconds_read_as_an_expression(seconds: float, text: str) -> None:
    assert every(seconds) == text
    entry(cron_expression=text).check()
