"""The crawl jobs' document, as it stands: its calls with their bodies, and its variables.

Beside them stand a token, which it has none of, and ids of jobs that are there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import quoted
from tests.api.server import Api
from tests.api.test_documented_calls import answered
from tests.processes import finished
from tests.quoted import Request

JOBS = """INSERT INTO worker_tasks (id, task_id, role, unique_key, kwargs, status, completed_at, error_message)
    SELECT n, 'documented ' || n, 'crawl_subreddit', n, jsonb_build_object('subreddit_id', n), 'failed', now(), 'broken'
    FROM generate_series(1, 5) n"""

STATUSES = "SELECT DISTINCT status FROM worker_tasks WHERE id BETWEEN 1 AND 5"
BREAK = """UPDATE worker_tasks SET status = 'failed', waits_for = NULL, completed_at = now()
    WHERE id BETWEEN 1 AND 5 AND status <> 'failed'"""

#: What the first job is after a call, by its method and path.
THEN = {
    "PUT /api/admin/jobs/{id}/status": ("pending", 0),
    "PUT /api/admin/jobs/{id}/priority": ("pending", 50),
    "POST /api/admin/jobs/{id}/boost": ("pending", 70),
    "POST /api/admin/jobs/{id}/retry": ("pending", 70),
}

#: And the schedule: its name, its expression, whether it is on, its priority.
SCHEDULED = {
    "POST /api/admin/scheduled-jobs": [("daily-askreddit", "@daily", True, 10)],
    "GET /api/admin/scheduled-jobs/{id}": [("daily-askreddit", "@daily", True, 10)],
    "PUT /api/admin/scheduled-jobs/{id}": [("hourly-worldnews", "@hourly", True, 20)],
    "DELETE /api/admin/scheduled-jobs/{id}": [],
    "POST /api/admin/scheduled-jobs/{id}/toggle": [("daily-askreddit", "@daily", False, 10)],
}

SCHEDULES = "celeriac.scheduled_jobs WHERE name IN ('daily-askreddit', 'hourly-worldnews')"

CALLS = quoted.requests("crawl-jobs")


@pytest.fixture
def five_jobs(api: Api) -> Iterator[None]:
    gone = "DELETE FROM worker_tasks WHERE id BETWEEN 1 AND 5"
    api.rows(gone)
    api.rows(JOBS)
    api.rows("SELECT setval('celeriac.tasks_id_seq', greatest(last_value, 5)) FROM celeriac.tasks_id_seq")
    api.rows("INSERT INTO subreddits (id, name) VALUES (1, 'askreddit') ON CONFLICT DO NOTHING")
    yield
    api.rows(gone)
    api.rows(f"DELETE FROM {SCHEDULES}")


def test_each_of_its_calls_does_what_it_says(api: Api, five_jobs: None, tmp_path: Path) -> None:
    """One after the other, each by curl. A job that is queued already can be queued; what is retried has failed."""
    left = {*THEN, *SCHEDULED}
    for call in CALLS:
        named = f"{call.method} {call.path.partition('?')[0]}"
        for _ in range(2 if named == "PUT /api/admin/jobs/{id}/status" else 1):
            done(api, call, named, tmp_path)
        left.discard(named)
    assert not left


def done(api: Api, call: Request, named: str, folder: Path) -> None:
    if "/bulk/" in named or named.endswith("/retry"):
        api.rows(BREAK)
    mine = schedule(api) if "/scheduled-jobs/{id}" in named else 1
    asked = call._replace(path=call.path.replace("<status>", "failed").replace("{id}", str(mine)))
    answer = answered(api, asked, folder)
    if "jobs" in (answer or ()) and "scheduled" not in named:
        assert {job["unique_key"] for job in answer["jobs"]} >= {"1", "2", "3", "4", "5"}
    if "/bulk/" in named:
        assert api.rows(STATUSES) == [("pending",)], named
    if named in THEN:
        assert api.rows("SELECT status, priority FROM worker_tasks WHERE id = 1") == [THEN[named]], named
    if named in SCHEDULED:
        assert api.rows(f"SELECT name, cron_expression, enabled, priority FROM {SCHEDULES}") == SCHEDULED[named], named


def schedule(api: Api) -> int:
    """The document's; made anew where it is gone."""
    there = api.rows(f"SELECT id FROM {SCHEDULES}")
    if there:
        return int(there[0][0])
    (create,) = (call for call in CALLS if (call.method, call.path) == ("POST", "/api/admin/scheduled-jobs"))
    return int(api.post(create.path, json.loads(create.body or ""))["id"])


ASKS = "from tasks.subreddits import STALE_DAYS, crawl; print(float(STALE_DAYS), crawl.role.stale_after / 60)"


@pytest.mark.parametrize(
    ("environ", "told"),
    [({}, "30.0 15.0"), ({"STALE_DAYS": "7", "RESET_CRAWLING_AFTER_MIN": "5"}, "7.0 5.0")],
)
def test_its_variables_have_its_defaults(environ: dict[str, str], told: str) -> None:
    bare = {name: value for name, value in os.environ.items() if name not in ("STALE_DAYS", "RESET_CRAWLING_AFTER_MIN")}
    run = finished([sys.executable, "-c", ASKS], bare | environ)
    assert run.stdout.strip() == told
