"""Beat: its config is installed beside what operators changed; passes and sweeps run, and what fails stops nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import psycopg2
import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

from celeriac import Celeriac, ConfigurationError, insights, repair
from celeriac.schedules import batcher, enqueuing, sweeping, written
from celeriac.schedules import beat as beating
from celeriac.schedules.beat import LOOK_EVERY, Scheduler
from celeriac.schedules.listed import entries
from celeriac.schedules.timetable import Timetable
from celeriac.store.failures import RETRY_EVERY
from tests.conftest import Servers
from tests.processes import Rows, until

BEAT = "SELECT {} FROM celeriac.scheduled_jobs WHERE name = :name"

EVERY_BACKEND_ENDS = "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE datname = '{}'"


@pytest.fixture
def app(app: Celeriac) -> Celeriac:
    @app.task(role="work", prompt=False, every=60, shared=False)
    def work(n: int = 0) -> int:
        return n

    return app


@pytest.fixture
def beat(app: Celeriac) -> Iterator[Scheduler]:
    beat = Scheduler(app)
    yield beat
    beat.close()


@pytest.fixture
def of(rows: Rows) -> Callable[[str, str], Any]:
    return lambda name, column: rows.one(BEAT.format(column), name=name)


def test_every_role_has_its_pass_and_every_sweep_its_turn(app: Celeriac) -> None:
    found = entries(app, {})
    assert {e.target for e in found.values() if e.kind == "sweep"} == set(repair.SWEEPS)
    assert found["batcher work"].cron_expression == "@every 60s"


def test_the_config_and_the_environment_win_over_the_usual(app: Celeriac) -> None:
    app.schedules = [batcher("work", every="@every 5s"), sweeping("rescue", every=7), enqueuing("n", "@daily", "work")]
    found = entries(app, {"CELERIAC_SCHEDULE_N": "off", "CELERIAC_SCHEDULE_SWEEP_RESCUE": "@hourly"})
    assert found["batcher work"].cron_expression == "@every 5s"
    assert found["sweep rescue"].cron_expression == "@hourly"
    assert not found["n"].enabled


def test_a_variable_switches_a_schedule(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> None:
    app.schedules = [enqueuing("n", "@daily", "work", enabled_by="QM_N")]
    assert entries(app)["n"].enabled
    monkeypatch.setenv("QM_N", "false")
    assert not entries(app)["n"].enabled


@pytest.mark.parametrize("wrong", [batcher("unheard_of"), enqueuing("n", "at noon", "work")])
def test_a_config_that_cannot_be_is_refused_at_the_start(app: Celeriac, wrong: Any) -> None:
    app.schedules = [wrong]
    with pytest.raises(ConfigurationError, match="schedule"):
        Scheduler(app)


def test_a_sweep_that_is_due_runs_and_tells_what_it_did(beat: Scheduler, of: Callable[[str, str], Any]) -> None:
    beat.tick()
    until(lambda: of("sweep rescue", "last_report"), "the rescue's report")
    report = of("sweep rescue", "last_report")
    with beat.app.database.reading() as connection:
        (rescue,) = [one for one in insights.sweep_runs(connection) if one.name == "sweep rescue"]
    assert (rescue.runs, rescue.failed, rescue.done, rescue.is_in_time) == (1, 0, report["done"], True)
    assert rescue.longest == report["seconds"]
    assert (report["done"], report["by"]) == (0, beat.app.process_name)
    assert report["seconds"] >= 0


def test_what_throws_is_told_and_runs_again(
    beat: Scheduler, rows: Rows, of: Callable[[str, str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed's cron was dead once its service had thrown: its in-progress flag stayed set."""
    ran: list[int] = []
    monkeypatch.setitem(repair.SWEEPS, "rescue", lambda _: ran.append(1) or 1 // 0)
    for turn in (1, 2):
        rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now()")
        beat.tick()
        until(lambda turn=turn: len(ran) == turn and of("sweep rescue", "last_report ->> 'error'"), "the error")
        until(lambda: of("sweep prune", "last_report ->> 'done'") is not None, "the other sweeps")
        until(lambda: beat.acts.running["sweep rescue"].done(), "the sweep's end")
    assert ran == [1, 1]
    assert "division" in of("sweep rescue", "last_report ->> 'error'")
    assert of("sweep rescue", "quarantined") is None


def test_a_long_sweep_makes_no_tick_late_and_does_not_overlap_itself(
    beat: Scheduler, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    from threading import Event

    began, go_on, ran = Event(), Event(), []

    def long(_: Celeriac) -> int:
        ran.append(1)
        began.set()
        return int(go_on.wait(30))

    monkeypatch.setitem(repair.SWEEPS, "rescue", long)
    beat.tick()
    assert began.wait(30)
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now()")
    assert beat.tick() <= 1.0
    go_on.set()
    beat.acts.running["sweep rescue"].result(30)
    assert ran == [1]


def test_what_has_much_to_make_up_for_keeps_no_other_waiting(
    app: Celeriac, beat: Scheduler, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celeriac.schedules.decide.AT_ONCE", 5)
    app.schedules = [enqueuing(name, "@every 1h", "work", misfire="all", overlap="allow") for name in ("long", "short")]
    beat.tick()
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() - interval '90 days' WHERE name = 'long'")
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() - interval '1 minute' WHERE name = 'short'")
    beat.tick()
    assert rows("SELECT enqueued_by, count(*) FROM worker_tasks GROUP BY 1 ORDER BY 1") == [
        ("schedule long", 5),
        ("schedule short", 1),
    ]


def test_beat_rests_while_somebody_holds_what_is_due(app: Celeriac, beat: Scheduler, rows: Rows) -> None:
    """Without a rest it asked Postgres as fast as it could until an operator's transaction ended."""
    app.schedules = [enqueuing("n", "@every 1h", "work")]
    beat.tick()
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() WHERE name = 'n'")
    with app.database.transaction() as operator:
        operator.exec_driver_sql("SELECT FROM celeriac.scheduled_jobs WHERE name = 'n' FOR UPDATE")
        assert beat.tick() >= 0.01
    beat.tick()
    assert rows.one("SELECT count(*) FROM worker_tasks") == 1


@pytest.mark.parametrize(
    "held",
    [
        "SELECT FROM celeriac.scheduled_jobs WHERE name = 'n' FOR UPDATE",
        "INSERT INTO celeriac.roles (role, definition) VALUES ('work', '{}')",
    ],
    ids=["a schedule", "a role"],
)
def test_a_beat_that_starts_waits_briefly_for_somebodys_row_and_runs_what_is_installed(
    app: Celeriac, beat: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, held: str
) -> None:
    monkeypatch.setattr(beating, "INSTALL_AGAIN", 0.0)
    installed(app, enqueuing("n", "@daily", "work"))
    with app.database.transaction() as operator:
        operator.exec_driver_sql(held)
        assert beat.tick() <= LOOK_EVERY
        assert (beat.installed, "sweep rescue" in beat.acts.running) == (False, True)
    assert "waits for an open transaction" in caplog.text
    assert "Traceback" not in caplog.text
    beat.tick()
    assert beat.installed


def installed(app: Celeriac, *schedules: Any, release: int = 0) -> list[str]:
    app.schedules = list(schedules)
    timetable = Timetable(app)
    with app.database.transaction() as connection:
        listed = list(entries(app, {}).values())
        return written.install(connection, listed, timetable.owner, release, "a test").foreign


def test_the_edited_config_takes_effect_and_what_an_operator_changed_stays(
    app: Celeriac, rows: Rows, of: Callable[[str, str], Any]
) -> None:
    installed(app, enqueuing("n", "@daily", "work", priority=5))
    rows("UPDATE celeriac.scheduled_jobs SET priority = 70 WHERE name = 'n'")
    installed(app, enqueuing("n", "@hourly", "work", priority=6))
    assert (of("n", "cron_expression"), of("n", "priority")) == ("@hourly", 70)
    with app.database.statement() as connection:
        row = written.find(connection, "n")
    assert row is not None
    assert written.differences(row) == {"priority": 6}


WAITS = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def test_what_an_operator_changes_while_a_beat_starts_stays(
    app: Celeriac, rows: Rows, of: Callable[[str, str], Any]
) -> None:
    """The row is read once the change is committed, not before it."""
    schedules = [enqueuing("n", "@daily", "work", priority=5), enqueuing("m", "@daily", "work")]
    installed(app, *schedules)
    with ThreadPoolExecutor(1) as pool:
        with app.database.transaction() as operator:
            operator.exec_driver_sql(
                "UPDATE celeriac.scheduled_jobs SET enabled = false, priority = 70 WHERE name = 'n'"
            )
            start = pool.submit(installed, app, *schedules)
            until(lambda: rows(WAITS), "the beat to wait for the operator")
        start.result(20)
    assert (of("n", "enabled"), of("n", "priority"), of("m", "enabled")) == (False, 70, True)


def test_what_leaves_the_config_is_switched_off_and_comes_back_with_it(
    app: Celeriac, of: Callable[[str, str], Any]
) -> None:
    installed(app, enqueuing("n", "@daily", "work"))
    installed(app)
    assert of("n", "enabled") is False
    installed(app, enqueuing("n", "@daily", "work"))
    assert of("n", "enabled") is True


def test_an_older_release_changes_nothing(app: Celeriac, of: Callable[[str, str], Any]) -> None:
    installed(app, enqueuing("n", "@daily", "work"), release=2)
    installed(app, enqueuing("n", "@hourly", "work"), release=1)
    installed(app, release=1)
    assert (of("n", "cron_expression"), of("n", "enabled")) == ("@daily", True)


def test_a_name_of_somebody_elses_is_left_alone(app: Celeriac, rows: Rows, of: Callable[[str, str], Any]) -> None:
    rows("INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression) VALUES ('n', 'other', '@weekly')")
    assert installed(app, enqueuing("n", "@daily", "work")) == ["n"]
    assert of("n", "target") == "other"


def test_another_app_s_schedules_are_its_own(app: Celeriac, rows: Rows, of: Callable[[str, str], Any]) -> None:
    installed(app, enqueuing("n", "@daily", "work"))
    rows("UPDATE celeriac.scheduled_jobs SET owner = 'beat another', next_run_at = now() WHERE name = 'n'")
    while Timetable(app).tick() is not None:
        pass
    assert of("n", "last_run_at") is None
    assert installed(app) == []
    assert of("n", "enabled") is True


def test_a_beat_says_that_it_ticks_and_leaves_when_it_ends(app: Celeriac, rows: Rows) -> None:
    beat = Scheduler(app)
    beat.tick()
    assert rows.one("SELECT count(*) FROM celeriac.beats WHERE last_tick_at > now() - interval '1 minute'") == 1
    beat.close()
    assert rows.one("SELECT count(*) FROM celeriac.beats") == 0


def test_a_tick_survives_a_database_that_is_gone_and_is_soon_tried_again(
    beat: Scheduler, servers: Servers, database_url: str
) -> None:
    name = make_url(database_url).database
    beat.tick()
    wait(beat.acts.running.values())
    servers.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    servers.execute(EVERY_BACKEND_ENDS.format(name))
    assert beat.tick() == RETRY_EVERY
    servers.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert beat.tick() <= LOOK_EVERY


def test_what_a_beat_could_not_report_it_reports_before_anything_else(
    beat: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It notes a gap, which a rescue of the next round depends on."""
    made: list[str] = []

    def report(*_: Any) -> None:
        made.append("report")
        if made == ["report"]:
            raise OperationalError("", {}, psycopg2.OperationalError("server closed the connection unexpectedly"))

    monkeypatch.setattr(beat.timetable, "report", report)
    monkeypatch.setattr(beat, "_round", lambda: made.append("round"))
    beat.report_at = 0.0
    beat.tick()
    beat.tick()
    assert made == ["report", "report", "round"]


def test_a_tick_survives_a_database_that_is_wrong(beat: Scheduler, rows: Rows) -> None:
    rows("ALTER TABLE celeriac.scheduled_jobs RENAME TO elsewhere")
    assert beat.tick() == LOOK_EVERY
    rows("ALTER TABLE elsewhere RENAME TO scheduled_jobs")
    assert beat.tick() <= 1.0


def test_a_signal_in_the_middle_of_a_tick_ends_beat_even_if_its_exception_gets_lost(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Celery's handler closes the scheduler and raises SystemExit, which a driver's callback may swallow."""
    beat = Scheduler(app)
    beat.tick()
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now()")
    with monkeypatch.context() as interrupted:
        interrupted.setattr(beat, "_report", beat.close)
        assert beat.tick() <= 1.0
    assert rows.one("SELECT count(*) FROM celeriac.beats") == 1, "not in the middle of it"
    with pytest.raises(SystemExit):
        beat.tick()
    beat.close()
    assert rows.one("SELECT count(*) FROM celeriac.beats") == 0
