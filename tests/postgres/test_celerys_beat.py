"""Celery's `beat_schedule` and `add_periodic_task` are rows like every other schedule."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from celery.schedules import crontab
from click.testing import CliRunner, Result

from celeriac import Celeriac, ConfigurationError
from celeriac.cli import within_celery
from celeriac.schedules import enqueuing, operate
from celeriac.schedules.beat import Scheduler
from celeriac.schedules.decide import Entry
from celeriac.schedules.timetable import Timetable
from tests.processes import Rows


@pytest.fixture
def app(app: Celeriac) -> Celeriac:
    @app.task(name="plus", prompt=False, shared=False)
    def plus(x: int, y: int = 0) -> int:
        return x + y

    @app.task(name="whatever", prompt=False, shared=False)
    def anything(*args: Any) -> None: ...

    @app.task(name="keyed", prompt=False, shared=False, lock_by=lambda given: given["day"].year)
    def keyed(day: Any, more: Any) -> None: ...

    return app


@pytest.fixture
def beat(app: Celeriac) -> Iterator[Scheduler]:
    beat = Scheduler(app)
    yield beat
    beat.close()


@contextmanager
def beside(app: Celeriac) -> Iterator[Celeriac]:
    """Another code base on the same Postgres."""
    other = Celeriac("beside", settings=app.settings, set_as_current=False)
    yield other
    other.close()


def due(rows: Rows) -> None:
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() WHERE kind = 'task'")


def check(app: Celeriac) -> Result:
    return CliRunner().invoke(within_celery, ["check", "--json"], obj=SimpleNamespace(app=app))


def test_an_entry_is_enqueued_with_its_arguments_and_options(app: Celeriac, beat: Scheduler, rows: Rows) -> None:
    options = {"priority": 7, "expires": 60, "account": "acme", "soft_time_limit": 9}
    app.conf.beat_schedule = {
        "sum": {"task": "plus", "schedule": 3600, "args": (1,), "kwargs": {"y": 2}, "options": options},
        "any": {"task": "whatever", "schedule": crontab(), "args": [1, "two"]},
    }
    beat.tick()
    due(rows)
    beat.tick()
    assert rows("""
        SELECT role, args, kwargs, priority, account, timeout, round(extract(epoch FROM expires_at - created_at))
        FROM worker_tasks ORDER BY role DESC
    """) == [("whatever", [1, "two"], {}, 0, "", None, None), ("plus", [], {"x": 1, "y": 2}, 7, "acme", 9, 60)]


DATES = {"at": datetime(2026, 3, 1, tzinfo=UTC), "of": Decimal("1.10"), "by": UUID(int=7)}


def test_dates_and_the_like_travel_as_in_a_call(app: Celeriac, beat: Scheduler, rows: Rows) -> None:
    app.schedules = [enqueuing("ours", "@hourly", "keyed", {"day": DATES["at"], "more": DATES})]
    app.conf.beat_schedule = {
        "named": {"task": "keyed", "schedule": 3600, "args": (DATES["at"],), "kwargs": {"more": DATES}},
        "placed": {"task": "whatever", "schedule": 3600, "args": tuple(DATES.values())},
    }
    assert json.loads(check(app).stdout)["problems"] == []
    beat.tick()
    due(rows)
    beat.tick()
    app.tasks["keyed"].delay(day=DATES["at"], more=DATES)
    app.tasks["whatever"].delay(*DATES.values())
    found = rows("SELECT role, args, kwargs, lock_key, count(*) FROM worker_tasks GROUP BY 1, 2, 3, 4 ORDER BY role")
    assert [(role, key, n) for role, _, _, key, n in found] == [("keyed", "2026", 3), ("whatever", None, 2)]
    Scheduler(app).tick()
    assert rows.one("SELECT count(*) FROM celeriac.scheduled_jobs WHERE kwargs <> declared -> 'kwargs'") == 0


def test_each_instant_enqueues_whether_or_not_the_last_task_has_finished(
    app: Celeriac, beat: Scheduler, rows: Rows
) -> None:
    app.add_periodic_task(3600, app.tasks["plus"].s(1), name="hourly")
    for _ in range(3):
        beat.tick()
        due(rows)
    assert rows.one("SELECT count(*) FROM worker_tasks") == 2
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() - interval '9 hours' WHERE name = 'hourly'")
    beat.tick()
    assert rows.one("SELECT count(*) FROM worker_tasks") == 3, "what was missed is made up for by one"


def test_it_is_listed_changed_and_run_like_every_other(app: Celeriac, beat: Scheduler, rows: Rows) -> None:
    app.conf.beat_schedule = {"sum": {"task": "plus", "schedule": 3600, "args": (1,)}}
    beat.tick()
    run = lambda *words: CliRunner().invoke(within_celery, ["schedules", *words], obj=SimpleNamespace(app=app))  # noqa: E731
    listed = {row["name"]: row for row in json.loads(run("list", "--json").stdout)}
    assert listed["sum"]["cron_expression"] == "@every 3600s"
    operate.change(app, "sum", {"kwargs": {"x": 5}, "options": {"expires": 5}}, by="test")
    assert run("run-now", "sum").exit_code == 0
    assert rows.one("SELECT kwargs FROM worker_tasks WHERE expires_at IS NOT NULL") == {"x": 5}
    Scheduler(app).tick()
    assert rows.one("SELECT kwargs FROM celeriac.scheduled_jobs WHERE name = 'sum'") == {"x": 5}, "an operator's stays"
    app.conf.beat_schedule = {}
    Scheduler(app).tick()
    assert rows.one("SELECT enabled FROM celeriac.scheduled_jobs WHERE name = 'sum'") is False


def test_a_kind_that_cannot_be_kept_stops_beat_with_the_entrys_name(app: Celeriac) -> None:
    app.conf.beat_schedule = {"moon": {"task": "plus", "schedule": object()}}
    with pytest.raises(ConfigurationError, match=r"^beat_schedule\['moon'\]: a schedule of the kind object cannot"):
        Scheduler(app)


def test_a_name_that_is_given_twice_stops_beat(app: Celeriac) -> None:
    app.schedules = [enqueuing("sum", "@daily", "plus", {"x": 1})]
    app.conf.beat_schedule = {"sum": {"task": "plus", "schedule": 5, "args": (1,)}}
    with pytest.raises(ConfigurationError, match="schedule 'sum': there are two of that name"):
        Scheduler(app)
    assert "there are two of that name" in check(app).stdout


@pytest.mark.parametrize(
    "names", [("nightly-run", "nightly run"), ("Nightly", "nightly"), ("sweep rescue", "sweep-rescue")]
)
def test_two_names_that_make_one_variable_stop_beat(app: Celeriac, names: tuple[str, str]) -> None:
    app.schedules = [enqueuing(names[0], "@daily", "plus", {"x": 1})] if "sweep" not in names[0] else []
    app.conf.beat_schedule = {names[1]: {"task": "plus", "schedule": 5, "args": (1,)}}
    with pytest.raises(
        ConfigurationError, match=r"both would have the variable CELERIAC_SCHEDULE_.*; rename one of them"
    ):
        Scheduler(app)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"task": "plu"}, "schedule 'sum': no role 'plu': start a worker of the code that declares it"),
        ({"args": ()}, "schedule 'sum': plus(x: 'int', y: 'int' = 0): missing a required argument: 'x'"),
        ({"kwargs": {"z": 1}}, "schedule 'sum': plus(x: 'int', y: 'int' = 0): got an unexpected keyword argument 'z'"),
        ({"options": {"priority": 10**9}}, "schedule 'sum': plus: priority=1000000000: give a whole number"),
        ({"options": {"expires": "soon"}}, "schedule 'sum': plus: "),
    ],
)
def test_check_knows_what_cannot_run_before_beat_does(app: Celeriac, said: dict[str, Any], says: str) -> None:
    app.conf.beat_schedule = {"sum": {"task": "plus", "schedule": 5, "args": (1,)} | said}
    told = check(app)
    (problem,) = json.loads(told.stdout)["problems"]
    assert problem.startswith(says)
    assert not problem.endswith("nothing was enqueued")
    assert told.exit_code == 1


def test_check_knows_a_name_that_belongs_to_an_operator(app: Celeriac) -> None:
    operate.create(
        app, Entry(name="sum", kind="task", target="plus", cron_expression="@daily", kwargs={"x": 1}), by="test"
    )
    app.conf.beat_schedule = {"sum": {"task": "plus", "schedule": 5, "args": (1,)}}
    (problem,) = json.loads(check(app).stdout)["problems"]
    assert problem.startswith("schedule 'sum' is in the beat config, but one of that name belongs to 'api'")


def test_check_knows_a_name_that_belongs_to_nobody_any_more(app: Celeriac, rows: Rows) -> None:
    rows("INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression) VALUES ('sum', 'plus', '@daily')")
    rows("UPDATE celeriac.scheduled_jobs SET owner = 'beat'")
    app.conf.beat_schedule = {"sum": {"task": "plus", "schedule": 5, "args": (1,)}}
    (problem,) = json.loads(check(app).stdout)["problems"]
    assert problem.startswith("schedule 'sum' is in the beat config, but one of that name belongs to 'beat'")


def test_sweeps_that_another_apps_beat_runs_are_no_problem_until_it_does_not(
    app: Celeriac, beat: Scheduler, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    beat.tick()
    caplog.clear()
    with beside(app) as other:
        rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() + interval '1 hour'")
        Timetable(other).install()
        assert [r.levelname for r in caplog.records if "another beat" in r.getMessage()] == ["WARNING"]
        assert "ERROR" not in {r.levelname for r in caplog.records}
        assert json.loads(check(other).stdout)["problems"] == []
        rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() - interval '1 hour' WHERE name = 'sweep rescue'")
        (problem,) = json.loads(check(other).stdout)["problems"]
        assert problem.startswith(f"schedule 'sweep rescue' belongs to 'beat {app.main}', whose beat does not run it")
