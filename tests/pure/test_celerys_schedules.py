"""Celery's schedules, as the timetable keeps them, are due when Celery would find them due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery.beat import ScheduleEntry
from celery.schedules import BaseSchedule, crontab, schedule, solar
from hypothesis import given
from hypothesis import strategies as st

from celeriac import Celeriac, ConfigurationError, Settings
from celeriac.schedules.celerys import entries
from celeriac.schedules.decide import Entry
from celeriac.schedules.expressions import parse


def new_app() -> Celeriac:
    nowhere = Settings(database_url="postgresql://nowhere.invalid/", redis_url="redis://nowhere.invalid/")
    app = Celeriac("shop", settings=nowhere, set_as_current=False)

    @app.task(name="plus", shared=False)
    def plus(x: int, y: int = 0) -> None: ...

    @app.task(name="whatever", shared=False)
    def anything(*args: Any) -> None: ...

    return app


@pytest.fixture
def app() -> Celeriac:
    return new_app()


APP = new_app()


def entry(app: Celeriac, **said: Any) -> Entry:
    app.conf.beat_schedule = {"n": {"task": "plus", "schedule": 5, "args": (1,)} | said}
    (found,) = entries(app.conf, app.roles)
    found.check()
    return found


def numbers(low: int, high: int) -> st.SearchStrategy[Any]:
    value = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        value,
        st.sets(value, min_size=1, max_size=4),
        st.integers(2, high).map(lambda n: f"*/{n}"),
        st.tuples(value, value).map(lambda pair: f"{pair[0]}-{pair[1]}"),  # Celery's go round
        st.tuples(value, value, st.integers(2, 5)).map(lambda t: f"{min(t[:2])}-{max(t[:2])}/{t[2]}"),
    )


@given(
    minute=numbers(0, 59),
    hour=numbers(0, 23),
    day_of_month=numbers(1, 28),
    month_of_year=numbers(1, 12),
    day_of_week=st.one_of(numbers(0, 6), st.sampled_from(["mon-fri", "fri-mon", "sunday", "tue,thu"])),
    start=st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),
)
def test_a_crontab_is_due_when_celery_says(start: datetime, **fields: Any) -> None:
    celerys = crontab(**fields, app=APP, nowfun=lambda: start)
    expected = start + celerys.remaining_estimate(start)
    found = entry(APP, schedule=crontab(**fields))
    assert parse(found.cron_expression, found.timezone).following(start) == expected


@pytest.mark.parametrize(
    ("given", "expression"),
    [
        (30, "@every 30s"), (0.5, "@every 0.5s"), (timedelta(minutes=2), "@every 120s"), (schedule(10), "@every 10s"),
        (crontab(minute="*/15", hour="9-17", day_of_week="mon-fri"), "*/15 9-17 * * 1-5"),
        (crontab(hour=22, minute=0, day_of_week="fri-mon"), "0 22 * * 0-1,5-6"),
        (crontab(0, 9, day_of_week=1, day_of_month="1-7"), "0 9 1-7 * &1"),
        (solar("sunset", -37.81753, 144.96715), "@solar sunset -37.8175 144.967"), ("@daily", "@daily"),
    ],
)  # fmt: skip
def test_each_kind_is_kept_as_an_expression_to_be_read_and_changed(app: Celeriac, given: Any, expression: str) -> None:
    found = entry(app, schedule=given)
    assert (found.cron_expression, found.overlap, found.misfire) == (expression, "allow", "once")


@pytest.mark.parametrize(
    ("seconds", "expression"),
    [(86_400, "0 0 * * *"), (3600, "0 * * * *"), (7200, "0 */2 * * *"), (300, "*/5 * * * *"), (20, "*/20 * * * * *")],
)
def test_a_relative_period_is_kept_at_full_hours_and_days(app: Celeriac, seconds: int, expression: str) -> None:
    assert entry(app, schedule=timedelta(seconds=seconds), relative=True).cron_expression == expression


@pytest.mark.parametrize("given", [86_400, schedule(86_400, relative=True), schedule(3600, relative=True)])
@pytest.mark.parametrize("start", [datetime(2026, 1, 5, 12, 30, tzinfo=UTC), datetime(2026, 7, 5, 20, tzinfo=UTC)])
def test_a_relative_period_is_due_when_celery_says(app: Celeriac, given: Any, start: datetime) -> None:
    app.conf.timezone = "Asia/Kolkata"  # half an hour beside UTC's
    local = start.astimezone(app.timezone)
    period = schedule(getattr(given, "run_every", given), relative=True, app=app, nowfun=lambda: local)
    found = entry(app, schedule=given, relative=True)
    assert parse(found.cron_expression, found.timezone).following(start) == start + period.remaining_estimate(local)


def test_the_sun_is_where_celery_finds_it() -> None:
    start = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for event in ("sunrise", "solar_noon", "dusk_astronomical"):
        celerys = solar(event, 52.52, 13.4, app=APP, nowfun=lambda: start)
        ours = parse(entry(APP, schedule=solar(event, 52.52, 13.4)).cron_expression).following(start)
        assert abs(start + celerys.remaining_estimate(start) - ours) < timedelta(seconds=2)


def test_every_event_of_the_sun_comes_once_a_day() -> None:
    sunset = parse("@solar sunset 52.52 13.4")
    at, seen = datetime(2026, 1, 1, tzinfo=UTC), []
    while len(seen) < 365:
        at = sunset.following(at)
        seen.append(at.date())
    assert seen == [datetime(2026, 1, 1).date() + timedelta(days=n) for n in range(365)]


def test_the_apps_time_zone_and_deadline_are_those_of_its_crontabs(app: Celeriac) -> None:
    app.conf.timezone, app.conf.beat_cron_starting_deadline = "Europe/Berlin", 300
    found = entry(app, schedule=crontab(0, 5))
    assert (found.timezone, found.misfire, found.misfire_grace) == ("Europe/Berlin", "skip", 300)


@pytest.mark.parametrize(
    ("args", "kwargs", "named", "positional"),
    [((1,), {}, {"x": 1}, None), ((1,), {"y": 2}, {"x": 1, "y": 2}, None), ((), {"x": 3}, {"x": 3}, None)],
)
def test_arguments_are_kept_by_name(app: Celeriac, args: Any, kwargs: Any, named: Any, positional: Any) -> None:
    found = entry(app, args=args, kwargs=kwargs)
    assert (found.kwargs, found.options.get("args")) == (named, positional)


def test_arguments_without_names_are_kept_by_place(app: Celeriac) -> None:
    assert entry(app, task="whatever", args=(1, "two")).options == {"args": [1, "two"]}


def test_options_of_a_call_are_kept_and_those_of_a_message_change_nothing(app: Celeriac) -> None:
    options = {"priority": 7, "expires": timedelta(minutes=1), "soft_time_limit": 9, "retry": False, "queue": "plus"}
    found = entry(app, options=options | {"account": "acme", "unique_key": "n"})
    assert found.priority == 7
    assert found.options == {"expires": 60.0, "timeout": 9, "account": "acme", "unique_key": "n"}


def test_periodic_tasks_are_entries_too(app: Celeriac) -> None:
    app.add_periodic_task(10, app.tasks["plus"].s(1), name="ten")
    app.add_periodic_task(crontab(), app.tasks["plus"].s(1, y="long" * 100))
    app.conf.beat_schedule["made"] = ScheduleEntry("made", "plus", schedule=schedule(7), kwargs={"x": 1}, app=app)
    found = {each.name: each for each in entries(app.conf, app.roles)}
    assert found["ten"].kwargs == {"x": 1}
    assert found["made"].cron_expression == "@every 7s"
    (long,) = found.keys() - {"ten", "made"}
    assert len(long) <= 200
    found[long].check()


class Moon(BaseSchedule):
    def is_due(self, last_run_at: datetime) -> Any:
        return True, 5


class Lunar(crontab):
    def is_due(self, last_run_at: datetime) -> Any:
        return True, 5


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"schedule": Moon()}, "a schedule of the kind Moon cannot be kept; give seconds"),
        ({"schedule": Lunar()}, "a schedule of the kind Lunar cannot be kept"),
        ({"schedule": crontab(nowfun=datetime.now)}, "a nowfun cannot be kept"),
        ({"schedule": None}, "it has no schedule; give seconds"),
        ({"task": None}, "task=None: give the name of a task"),
        ({"task": 5}, "task=5: give the name of a task"),
        ({"args": "text"}, "args='text': give a list or a tuple"),
        ({"args": 5}, "args=5: give a list or a tuple"),
        ({"kwargs": [1]}, r"kwargs=\[1\]: give a dict by name"),
        ({"kwargs": {1: 2}}, r"kwargs=\{1: 2\}: give a dict by name"),
        ({"options": 5}, "options=5: give a dict by name"),
        ({"schedule": 0}, "'@every 0s' is too short"),
        ({"schedule": "at noon"}, "write 5"),
        ({"schedule": timedelta(seconds=7), "relative": True}, "every 7 s cannot be rounded"),
        ({"options": {"task_id": "same"}}, r"options\['task_id'\] is of a single task"),
        ({"options": {"prioritty": 1}}, "a call has no option 'prioritty'"),
        ({"options": {"queue": "other"}}, "its queue is 'celery', set where the role is declared; not 'other'"),
        ({"kwargs": {"x": object()}}, "the arguments cannot be kept: not JSON"),
        ({"args": ({1, 2},)}, "the arguments cannot be kept: not JSON"),
        ({"shedule": 5}, "there is no 'shedule'; an entry says args, kwargs"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_the_entrys_name(app: Celeriac, said: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"'n'.*{says}"):
        entry(app, **said)


def test_a_machines_own_time_zone_is_none(app: Celeriac) -> None:
    app.conf.enable_utc = False
    assert entry(app, schedule=5).cron_expression == "@every 5s"
    with pytest.raises(ConfigurationError, match=r"'n'.*: give timezone='Europe/Berlin'"):
        entry(app, schedule=crontab())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"n": 5}, r"^beat_schedule\['n'\]=5: give a dict of args, kwargs, options, relative, schedule, task$"),
        ({"n": "plus"}, r"^beat_schedule\['n'\]='plus': give a dict"),
        (["plus"], r"^beat_schedule=\['plus'\]: give a dict of entries by name$"),
    ],
)
def test_what_is_no_entry_is_refused_by_name(app: Celeriac, given: Any, says: str) -> None:
    app.conf.beat_schedule = given
    with pytest.raises(ConfigurationError, match=says):
        list(entries(app.conf, app.roles))


def test_a_deadline_that_is_none_is_blamed_by_its_name(app: Celeriac) -> None:
    app.conf.beat_cron_starting_deadline = "soon"
    with pytest.raises(ConfigurationError, match="beat_cron_starting_deadline='soon': give seconds"):
        entry(app, schedule=crontab())
