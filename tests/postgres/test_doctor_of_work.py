"""`celeriac doctor` answers the four lists of the crawl jobs' document: what to look at when work does not go on."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from celeriac import Celeriac
from celeriac.cli import within_celery
from celeriac.cli.status import overview
from celeriac.dispatch.passes import Dispatcher
from celeriac.insights.history.sweeps import COSTS
from celeriac.operate import policies
from celeriac.repair import SWEEPS
from celeriac.roles.role import Role
from celeriac.schedules import enqueuing, written
from celeriac.schedules.timetable import Timetable
from celeriac.store.connections import Database
from tests.postgres import stages
from tests.postgres.commands.workers import work
from tests.postgres.conftest import new_task
from tests.postgres.finished import finished, registered
from tests.processes import Rows

Asked = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def asked(app: Celeriac, put: Callable[..., Any], rows: Rows) -> Asked:
    """The lines of one check; a task of `work` waits."""
    registered(rows, "work")
    put("work")

    def ask(check: str) -> list[dict[str, Any]]:
        told = CliRunner().invoke(within_celery, ["doctor", "--json"], obj=SimpleNamespace(app=app))
        return [finding for finding in json.loads(told.stdout) if finding["check"] == check]

    return ask


def only(findings: list[dict[str, Any]]) -> tuple[bool, str, str | None]:
    (one,) = findings
    return one["ok"], one["says"], one["cure"]


# -- jobs not processing -----------------------------------------------------------------------------------------------


def test_a_paused_role_that_has_work_is_told(asked: Asked, rows: Rows) -> None:
    assert only(asked("pauses"))[0]
    rows("UPDATE celeriac.roles SET paused = true WHERE role = 'work'")
    ok, says, cure = only(asked("pauses"))
    assert (ok, says) == (False, "work is paused, and 1 of its tasks wait")
    assert cure is not None
    assert "`celeriac roles resume work`" in cure


def test_a_task_that_runs_for_too_long_is_told(asked: Asked, database: Database, rows: Rows) -> None:
    stages.started(database, *stages.claimed(database))
    assert only(asked("outcomes"))[0]
    rows("UPDATE celeriac.tickets SET started_at = now() - interval '2 hours'")
    ok, says, cure = only(asked("outcomes"))
    assert (ok, "work: a task runs for 720" in says) == (False, True)
    assert cure is not None
    assert "`celeriac tasks list --role work --status running`" in cure


def test_a_role_whose_tasks_fail_is_told_with_where_their_errors_are(asked: Asked, rows: Rows) -> None:
    finished(rows, n=30, status="failed")
    ok, says, cure = only(asked("outcomes"))
    assert (ok, says) == (False, "work: 100.0% of its tasks fail, more than 10.0%")
    assert cure == "`celeriac failures list --role work --since 3600` groups their errors"


# -- failed jobs not retrying ------------------------------------------------------------------------------------------


def test_retries_whose_time_came_and_that_nobody_promotes_are_told(
    asked: Asked, database: Database, rows: Rows
) -> None:
    (task,) = stages.started(database, *stages.claimed(database))
    stages.settled(database, stages.again(task, delay=600))
    assert only(asked("retries")) == (True, "what waits for its time goes on at it", None)
    rows("UPDATE worker_tasks SET scheduled_for = now() - interval '5 minutes'")
    ok, says, cure = only(asked("retries"))
    assert (ok, says) == (
        False, "1 tasks of work wait although their time came, the first 5 min ago: nobody promotes them",
    )  # fmt: skip
    assert cure is not None
    assert "`celeriac sweep promote`" in cure
    rows("UPDATE celeriac.roles SET paused = true WHERE role = 'work'")
    assert only(asked("retries"))[0], "it is the pause that keeps them"


def test_what_has_no_retry_left_is_told(asked: Asked, rows: Rows) -> None:
    finished(rows, n=2, status="failed", retry_count=3)
    finished(rows, n=1, status="failed", retry_count=1)
    ok, says, _ = only(asked("retries"))
    assert ok
    assert "failed within a day after all their retries: 2 of work (`celeriac tasks retry` gives them new ones)" in says


# -- scheduled jobs not running ----------------------------------------------------------------------------------------


def test_which_schedules_are_off_and_which_comes_next_is_told(asked: Asked, app: Celeriac, rows: Rows) -> None:
    app.schedules = [enqueuing("daily", "@daily", "work"), enqueuing("never", "@daily", "work", enabled=False)]
    Timetable(app).install()
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = '2030-01-01 00:00:00+00' WHERE name = 'daily'")
    ok, says, _ = only(asked("schedules"))
    assert ok
    assert "next daily at 2030-01-01 00:00:00" in says
    assert says.endswith("; off: never")


def test_a_schedule_that_beat_could_not_take_up_is_told(asked: Asked, app: Celeriac) -> None:
    app.schedules = [enqueuing("of nothing", "@daily", "crawl_subreddit", {"subreddit_id": 404})]
    assert only(asked("schedules"))[0], "no beat of this app has run"
    Timetable(app).install()
    ok, says, cure = only(asked("schedules"))
    assert (ok, says) == (False, "of nothing stands in the beat config alone")
    assert cure == "start beat anew; what refuses it stands in its log"


def test_a_schedule_that_left_out_an_instant_names_its_last_task(asked: Asked, rows: Rows) -> None:
    rows("""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, skips, last_skip_at, last_task_id)
        VALUES ('hourly', 'work', '@hourly', 1, now() - interval '10 minutes', 'the-last')""")
    ok, says, cure = only(asked("schedules"))
    assert (ok, says.startswith("hourly: left out an instant at ")) == (False, True)
    assert cure == "`celeriac why the-last` tells of that task"
    rows("UPDATE celeriac.scheduled_jobs SET last_skip_at = now() - interval '2 hours'")
    assert only(asked("schedules"))[0]


# -- priority not working ----------------------------------------------------------------------------------------------


def test_what_waits_at_which_priority_and_its_order_are_told(asked: Asked, database: Database) -> None:
    stages.enqueued(database, *(new_task(priority=priority) for priority in (60, 60, 20)))
    ok, says, _ = only(asked("priorities"))
    assert ok
    assert "work 2 at 60, 1 at 20, 1 at 0; of an account, the highest go first, and the oldest of them" in says


def test_what_aging_did_last_is_told(asked: Asked, app: Celeriac, rows: Rows) -> None:
    Timetable(app).install()
    rows("UPDATE celeriac.scheduled_jobs SET last_run_at = '2026-01-01 12:00:00+00' WHERE target = 'aging'")
    ok, says, _ = only(asked("priorities"))
    assert ok
    assert "; aging last ran at " in says


def test_a_sweep_that_is_switched_off_is_told_with_what_it_costs(asked: Asked, app: Celeriac, rows: Rows) -> None:
    assert {*COSTS} == {*SWEEPS}
    Timetable(app).install()
    assert only(asked("sweeps"))[0]
    rows("UPDATE celeriac.scheduled_jobs SET enabled = target <> 'prune' WHERE kind = 'sweep'")
    assert only(asked("sweeps")) == (
        False, f"sweep prune is switched off: {COSTS['prune']}", "run `celeriac schedules toggle 'sweep prune' on`",
    )  # fmt: skip


def test_a_sweep_fails_that_has_failed_twice_until_it_succeeds(asked: Asked, app: Celeriac, rows: Rows) -> None:
    """Once it may have met somebody's lock; one that runs seldom has had all the patience there is."""

    def runs(**report: Any) -> tuple[bool, str]:
        with app.database.transaction() as connection:
            for keep in (written.keep_report, written.ran):
                keep(connection, "sweep prune", {"seconds": 1.0} | report)
        return only(asked("sweeps"))[:2]

    Timetable(app).install()
    rows("UPDATE celeriac.scheduled_jobs SET last_run_at = now(), next_run_at = now() + interval '30 s'")
    assert runs(error="permission denied")[0]
    fails = (False, f"sweep prune: fails: «permission denied»; meanwhile {COSTS['prune']}")
    assert runs(error="permission denied") == fails
    assert runs(done=3)[0]
    assert runs(error="permission denied") == fails
    CliRunner().invoke(within_celery, ["sweep", "prune"], obj=SimpleNamespace(app=app), catch_exceptions=False)
    assert only(asked("sweeps"))[0], "by hand"
    rows("DELETE FROM celeriac.sweep_runs")
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() + interval '1 day' WHERE target = 'prune'")
    assert runs(error="permission denied") == fails


def test_an_account_of_which_nothing_may_start_is_told(
    asked: Asked, app: Celeriac, put: Callable[..., Any], dispatcher: Dispatcher
) -> None:
    """Once a pass has put its tasks aside."""
    put("work", account="acme")
    put("work", account="it's")
    with app.database.transaction() as connection:
        policies.pause_account(connection, "acme", by="me")
        policies.set_account(connection, "it's", by="me", cap=0)
        policies.pause_account(connection, "idle", by="me", create=True)
    dispatcher.claim(Role(name="work"))
    paused, capped = sorted(asked("pauses"), key=lambda one: one["says"])
    assert paused["says"] == "account acme is paused, and 1 of its tasks wait"
    assert paused["cure"] == "run `celeriac accounts resume acme`, if it is not meant any more"
    assert capped["says"] == "account it's has the cap 0, and 1 of its tasks wait"
    for finding in (paused, capped):
        command = shlex.split(finding["cure"].split("`")[1])[1:]
        done = CliRunner().invoke(within_celery, command, obj=SimpleNamespace(app=app), catch_exceptions=False)
        assert done.exit_code == 0, done.output
    assert only(asked("pauses"))[0]


def test_a_worker_that_has_stopped_has_no_slots(app: Celeriac, rows: Rows) -> None:
    work(rows, "gone")
    work(rows, "here")
    rows("UPDATE celeriac.workers SET status = 'stopped' WHERE worker_id = 'gone'")
    assert [worker["worker_id"] for worker in overview(app)["workers"]] == ["here"]
