"""The scheduled jobs' admin endpoints and the manual triggers, over HTTP, on rows."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from celeriac.schedules.timetable import Timetable
from tasks.app import app
from tests.api.server import Api, serving
from tests.api.works import audited, task
from tests.conftest import Servers
from tests.processes import finished
from tests.systems.stack import on_servers

JOBS = "/api/admin/scheduled-jobs"

#: As the seed's document sends it.
ASKREDDIT = {
    "name": "daily-askreddit", "description": "Daily crawl of AskReddit", "subreddit_id": 1,
    "cron_expression": "@daily", "enabled": True, "priority": 10,
}  # fmt: skip


@pytest.fixture(scope="module")
def of_beat(api: Api, servers: Servers, database_of_the_api: str) -> Iterator[None]:
    """What beat's config says is in the rows."""
    with on_servers(app, {"DATABASE_URL": database_of_the_api, "REDIS_URL": servers.redis_url}):
        Timetable(app).install()
        yield


@pytest.fixture
def job(api: Api) -> Iterator[int]:
    """The seed's job's id."""
    api.rows("INSERT INTO subreddits (id, name) VALUES (1, 'askreddit') ON CONFLICT DO NOTHING")
    made = api.post(JOBS, ASKREDDIT)["id"]
    yield made
    api.rows("DELETE FROM celeriac.scheduled_jobs WHERE id = :i", i=made)


def test_what_became_of_its_instants_is_told_page_by_page_with_how_late_they_were(api: Api, job: int) -> None:
    made = task(api, "failed")
    api.rows("UPDATE celeriac.history SET completed_at = now() WHERE id = :i", i=made)
    api.rows(
        """INSERT INTO celeriac.ticks (schedule, due_at, done_at, task_id, left_out, why)
        SELECT :job, at, at + i * interval '1 second', CASE WHEN i < 3 THEN t.task_id END,
            CASE WHEN i < 3 THEN 0 ELSE 4 END, CASE WHEN i = 3 THEN 'no beat ticked' END
        FROM generate_series(1, 3) i, LATERAL (SELECT now() - i * interval '1 hour' AS at) AS x,
            (SELECT task_id FROM worker_tasks WHERE id = :task) AS t""",
        job=job, task=made,
    )  # fmt: skip
    whole = api.get(f"{JOBS}/{job}/ticks")
    assert [(t["id"], t["status"], t["late_seconds"], t["left_out"], t["why"]) for t in whole["ticks"]] == [
        (made, "failed", 1.0, 0, None), (made, "failed", 2.0, 0, None), (None, None, 3.0, 4, "no beat ticked"),
    ]  # fmt: skip
    first = api.get(f"{JOBS}/{job}/ticks?limit=2")
    rest = api.get(f"{JOBS}/{job}/ticks?limit=2&after={quote(first['next'])}")
    assert (first["ticks"] + rest["ticks"], rest["next"]) == (whole["ticks"], None)
    api.refused(422, "GET", f"{JOBS}/{job}/ticks?after=2026-13-01T00:00:00.000000Z%202026-01-01T00:00:00.000000Z")
    of_it, of_all = api.get(f"{JOBS}/{job}/lateness"), api.get("/api/lateness")
    assert (of_it["worst"], of_it["ticks"]) == (2.0, {"n": 2, "exact": True})
    assert of_all["worst"] >= 2.0
    for path in ("ticks", "lateness"):
        api.refused(404, "GET", f"{JOBS}/999999999/{path}")


def test_a_job_is_created_as_the_seed_does(api: Api, job: int) -> None:
    assert api.rows(
        "SELECT name, target, kwargs, cron_expression, enabled, priority, created_by"
        " FROM celeriac.scheduled_jobs WHERE id = :i",
        i=job,
    ) == [("daily-askreddit", "crawl_subreddit", {"subreddit_id": 1}, "@daily", True, 10, f"admin {api.url}")]
    assert [(e[1], e[2], e[3]["cron_expression"]) for e in audited(api, "schedule", job)] == [
        ("create", None, "@daily")
    ]
    assert "already" in api.refused(409, "POST", JOBS, json=ASKREDDIT)["detail"]


def test_a_job_of_a_subreddit_that_is_not_there_is_refused(api: Api, job: int) -> None:
    document = api.refused(422, "POST", JOBS, json=ASKREDDIT | {"name": "of nothing", "subreddit_id": 404})
    assert [error["field"] for error in document["errors"]] == ["kwargs"]
    assert 'Key (subreddit_id)=(404) is not present in table "subreddits"' in document["detail"]
    api.refused(422, "PUT", f"{JOBS}/{job}", json={"subreddit_id": 404})
    assert api.get(f"{JOBS}/{job}")["kwargs"] == {"subreddit_id": 1}


def test_a_subreddit_that_is_deleted_takes_its_jobs_with_it(api: Api, job: int) -> None:
    api.rows("DELETE FROM subreddits WHERE id = 1")
    api.refused(404, "GET", f"{JOBS}/{job}")
    _, action, before, _, why = audited(api, "schedule", job)[-1]
    assert (action, before["name"], why) == ("delete", "daily-askreddit", "r/askreddit was deleted")


def test_jobs_are_listed_with_limit_and_offset(api: Api, job: int) -> None:
    names = [one["name"] for one in api.get(JOBS)["scheduled_jobs"]]
    assert names == sorted(names)
    assert "daily-askreddit" in names
    offset = names.index("daily-askreddit")
    (listed,) = api.get(f"{JOBS}?limit=1&offset={offset}")["scheduled_jobs"]
    assert listed == api.get(f"{JOBS}/{job}")


def test_a_job_is_read(api: Api, job: int) -> None:
    read = api.get(f"{JOBS}/{job}")
    assert (read["description"], read["in_words"]) == ("Daily crawl of AskReddit", "at 00:00 every day")
    api.refused(404, "GET", f"{JOBS}/999999999")


def test_a_job_whose_name_is_anothers_id_does_not_stand_for_it(api: Api, job: int) -> None:
    namesake = api.post(JOBS, ASKREDDIT | {"name": str(job)})["id"]
    try:
        assert api.get(f"{JOBS}/{job}")["name"] == "daily-askreddit"
        assert api.post(f"{JOBS}/{job}/toggle", {"enabled": False})["name"] == "daily-askreddit"
        told = api.post(f"{JOBS}/{job}/run-now")["told"]
        api.rows("UPDATE worker_tasks SET status = 'cancelled' WHERE task_id = :told", told=told)
        assert told.startswith("daily-askreddit@")
        assert api.delete(f"{JOBS}/{job}")["id"] == job
        api.refused(404, "GET", f"{JOBS}/{job}")
    finally:
        api.delete(f"{JOBS}/{namesake}")


def test_options_of_each_call_are_set_and_those_that_do_not_exist_refused(api: Api, job: int) -> None:
    given = {"account": "acme", "expires": 300, "max_retries": 10}
    assert api.put(f"{JOBS}/{job}", {"options": given})["options"] == given
    told = api.post(f"{JOBS}/{job}/run-now")["told"]
    assert api.rows(
        "SELECT account, expires_at > created_at, max_retries FROM celeriac.worker_tasks WHERE task_id = :t", t=told
    ) == [("acme", True, 10)]
    api.refused(422, "PUT", f"{JOBS}/{job}", json={"options": {"expire": 5}})


def test_a_job_is_updated(api: Api, job: int) -> None:
    """With the seed's body, which says neither arguments nor role: they stay."""
    body = {
        "name": "hourly-worldnews", "description": "Hourly crawl of WorldNews", "cron_expression": "@hourly",
        "enabled": True, "priority": 20,
    }  # fmt: skip
    changed = api.put(f"{JOBS}/{job}", body)
    assert (changed["name"], changed["kwargs"]) == ("hourly-worldnews", {"subreddit_id": 1})
    assert api.rows("SELECT name, cron_expression, priority FROM celeriac.scheduled_jobs WHERE id = :i", i=job) == [
        ("hourly-worldnews", "@hourly", 20)
    ]
    update = audited(api, "schedule", job)[-1]
    assert (update[1], update[2]["priority"], update[3]["priority"]) == ("update", 10, 20)


def test_a_job_is_toggled(api: Api, job: int) -> None:
    assert api.post(f"{JOBS}/{job}/toggle", {"enabled": False}, scope="operate")["enabled"] is False
    assert api.rows.one("SELECT enabled FROM celeriac.scheduled_jobs WHERE id = :i", i=job) is False


def test_a_job_is_deleted(api: Api, job: int) -> None:
    assert api.delete(f"{JOBS}/{job}")["name"] == "daily-askreddit"
    assert api.rows("SELECT FROM celeriac.scheduled_jobs WHERE id = :i", i=job) == []
    assert audited(api, "schedule", job)[-1][1] == "delete"
    api.refused(404, "DELETE", f"{JOBS}/{job}")


def test_a_job_runs_now(api: Api, job: int) -> None:
    first = api.post(f"{JOBS}/{job}/run-now", scope="operate")
    told = first["told"]
    assert api.rows("SELECT role, kwargs, priority FROM worker_tasks WHERE task_id = :t", t=told) == [
        ("crawl_subreddit", {"subreddit_id": 1}, 10)
    ]
    again = api.post(f"{JOBS}/{job}/run-now")
    assert (first["ran"], again) == (True, {"told": told, "ran": False}), "the first is unfinished"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cron_expression": "every day"}, "cron_expression"), ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"misfire": "never"}, "misfire"), ({"priority": "high"}, "priority"), ({"priority": 101}, "priority"),
        ({"role": "no_such_role"}, "role"), ({"role": "crawl_subreddit", "colour": "red"}, "kwargs"),
        ({"colour": "red"}, "role"), ({"name": ""}, "name"),
    ],
)  # fmt: skip
def test_what_could_never_run_is_refused_by_its_field(api: Api, change: dict, field: str) -> None:
    document = api.refused(422, "POST", JOBS, json=ASKREDDIT | {"name": "never"} | change)
    assert [error["field"] for error in document["errors"]] == [field]
    assert api.rows("SELECT FROM celeriac.scheduled_jobs WHERE name = 'never'") == []


def test_what_beats_config_declares_is_switched_off_rather_than_deleted(api: Api, of_beat: None) -> None:
    declared = api.rows.one("SELECT id FROM celeriac.scheduled_jobs WHERE name = 'batcher instasite_build'")
    assert "switch it off" in api.refused(409, "DELETE", f"{JOBS}/{declared}")["detail"]
    api.refused(409, "PUT", f"{JOBS}/{declared}", json={"name": "another"})
    before = api.get(f"{JOBS}/{declared}")
    changed = api.put(f"{JOBS}/{declared}", {"cron_expression": "@every 1m"})
    assert (changed["cron_expression"], before["differs"]) == ("@every 1m", {})
    assert changed["differs"] == {"cron_expression": before["cron_expression"]}
    assert api.post(f"{JOBS}/{declared}/toggle", {"enabled": False})["enabled"] is False


def test_a_hook_runs_its_schedule(api: Api, of_beat: None) -> None:
    told = api.post("/api/trigger/instasites/build", scope="operate")["told"]
    assert "instasite_build" in told
    declared = api.rows.one("SELECT id FROM celeriac.scheduled_jobs WHERE name = 'batcher instasite_build'")
    assert audited(api, "schedule", declared)[-1][1] == "run-now"
    api.refused(404, "POST", "/api/trigger/instasites/no_such_job")


def test_a_hook_needs_no_beat_that_has_started(of_beat: None, api: Api) -> None:
    name = "batcher instasite_build"
    api.rows("DELETE FROM celeriac.scheduled_jobs WHERE name = :n", n=name)
    assert "instasite_build" in api.post("/api/trigger/instasites/build")["told"]
    assert api.rows.one("SELECT owner FROM celeriac.scheduled_jobs WHERE name = :n", n=name) == "beat tasks"


def test_the_stale_fixer_is_triggered_before_any_beat_has_run(api: Api) -> None:
    """By the path of its document."""
    api.rows("DELETE FROM celeriac.scheduled_jobs WHERE name = 'fix-stale-thumbnails'")
    told = api.post("/api/trigger/sites/fixStaleThumbnails")["told"]
    assert api.rows("SELECT role, status FROM worker_tasks WHERE task_id = :told", told=told) == [
        ("fix_stale_thumbnails", "pending")
    ]


def test_when_a_job_runs_next_is_known_before_a_beat_looks(api: Api, job: int) -> None:
    def due(shown: dict) -> timedelta:
        return datetime.fromisoformat(shown["next_run_at"]) - datetime.now(UTC)

    created = api.get(f"{JOBS}/{job}")
    assert timedelta() < due(created) <= timedelta(days=1)
    assert datetime.fromisoformat(created["next_run_at"]).hour == 0
    changed = api.put(f"{JOBS}/{job}", {"cron_expression": "0 0 1 1 *", "timezone": "Asia/Tokyo"})
    assert datetime.fromisoformat(changed["next_run_at"]).strftime("%m-%d %H:%M") == "12-31 15:00"
    api.rows("UPDATE celeriac.scheduled_jobs SET enabled = false, next_run_at = '2001-01-01' WHERE id = :i", i=job)
    assert due(api.post(f"{JOBS}/{job}/toggle", {"enabled": True})) > timedelta()


def test_hooks_are_not_there_unless_they_are_switched_on(
    of_beat: None, servers: Servers, database_of_the_api: str, tmp_path: Path
) -> None:
    with serving(database_of_the_api, servers.redis_url, tmp_path / "log", QM_HOOKS="") as closed:
        assert "QM_HOOKS" in closed.refused(404, "POST", "/api/trigger/instasites/build")["detail"]


def test_hooks_that_are_switched_neither_on_nor_off_keep_the_api_from_starting() -> None:
    nowhere = {"DATABASE_URL": "postgresql://nowhere.invalid/", "REDIS_URL": "redis://nowhere.invalid/"}
    command = [sys.executable, "-c", "from celeriac.cli import main; main()", "serve"]
    done = finished(command, {**os.environ, **nowhere, "QM_HOOKS": "perhaps"})
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "QM_HOOKS='perhaps' is not usable: give true or false" in done.stderr
