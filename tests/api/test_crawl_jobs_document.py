"""The crawl jobs' document, as it stands: its calls with their bodies, and its variables.

Beside them stand a token, which it has none of, and ids of jobs that are there.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator

import pytest

from tests.api.server import Api
from tests.processes import finished

CALLS = """
GET /api/admin/jobs/stats

GET /api/admin/jobs?status=<status>&limit=100&offset=0

PUT /api/admin/jobs/{id}/status
Content-Type: application/json

{
  "status": "queued"
}

PUT /api/admin/jobs/{id}/priority
Content-Type: application/json

{
  "priority": 50
}

POST /api/admin/jobs/{id}/boost
Content-Type: application/json

{
  "boost": 20
}

PUT /api/admin/jobs/{id}/status
Content-Type: application/json

{
  "status": "failed"
}

POST /api/admin/jobs/{id}/retry

PUT /api/admin/jobs/bulk/status
Content-Type: application/json

{
  "job_ids": [1, 2, 3, 4, 5],
  "status": "queued"
}

POST /api/admin/jobs/bulk/retry
Content-Type: application/json

{
  "job_ids": [1, 2, 3, 4, 5]
}

GET /api/admin/scheduled-jobs?limit=100&offset=0

POST /api/admin/scheduled-jobs
Content-Type: application/json

{
  "name": "daily-askreddit",
  "description": "Daily crawl of AskReddit",
  "subreddit_id": 1,
  "cron_expression": "@daily",
  "enabled": true,
  "priority": 10
}

GET /api/admin/scheduled-jobs/{id}

PUT /api/admin/scheduled-jobs/{id}
Content-Type: application/json

{
  "name": "hourly-worldnews",
  "description": "Hourly crawl of WorldNews",
  "cron_expression": "@hourly",
  "enabled": true,
  "priority": 20
}

POST /api/admin/scheduled-jobs/{id}/toggle
Content-Type: application/json

{
  "enabled": false
}

DELETE /api/admin/scheduled-jobs/{id}
"""

CALL = r"^([A-Z]+ /\S+)\n(?:Content-Type: application/json\n\n(\{.*?^\})\n)?"

JOBS = """INSERT INTO worker_tasks (id, task_id, role, unique_key, kwargs, status, completed_at, error_message)
    SELECT n, 'documented ' || n, 'crawl_subreddit', n, jsonb_build_object('subreddit_id', n), 'failed', now(), 'broken'
    FROM generate_series(1, 5) n"""

STATUSES = "SELECT DISTINCT status FROM worker_tasks WHERE id BETWEEN 1 AND 5"
BREAK = "UPDATE worker_tasks SET status = 'failed', waits_for = NULL, completed_at = now() WHERE id BETWEEN 1 AND 5"

#: What each job is after a call, by its method and path.
THEN = {
    "PUT /api/admin/jobs/{id}/status": [("pending", 0), ("cancelled", 70)],
    "PUT /api/admin/jobs/{id}/priority": [("pending", 50)],
    "POST /api/admin/jobs/{id}/boost": [("pending", 70)],
    "POST /api/admin/jobs/{id}/retry": [("pending", 70)],
}


@pytest.fixture
def five_jobs(api: Api) -> Iterator[None]:
    gone = "DELETE FROM worker_tasks WHERE id BETWEEN 1 AND 5"
    api.rows(gone)
    api.rows(JOBS)
    api.rows("SELECT setval('celeriac.tasks_id_seq', greatest(last_value, 5)) FROM celeriac.tasks_id_seq")
    api.rows("INSERT INTO subreddits (id, name) VALUES (1, 'askreddit') ON CONFLICT DO NOTHING")
    yield
    api.rows(gone)


def test_each_of_its_calls_does_what_it_says(api: Api, five_jobs: None) -> None:
    then = {call: list(states) for call, states in THEN.items()}
    made = 1
    for call, body in re.findall(CALL, CALLS, re.MULTILINE | re.DOTALL):
        method, path = call.replace("<status>", "failed").replace("{id}", str(made)).split()
        if "/bulk/" in call:
            api.rows(f"{BREAK} AND status <> 'failed'")
        answer = api.ask(method, path, json=json.loads(body) if body else None)
        assert answer.is_success, f"{call}: {answer.status_code} {answer.text}"
        if "jobs" in answer.json():
            assert {job["unique_key"] for job in answer.json()["jobs"]} >= {"1", "2", "3", "4", "5"}
        if "/bulk/" in call:
            assert api.rows(STATUSES) == [("pending",)], call
        if call in then:
            expected = then[call].pop(0)
            assert api.rows("SELECT status, priority FROM worker_tasks WHERE id = 1") == [expected], call
        if call.startswith("POST /api/admin/scheduled-jobs") and answer.status_code == 201:
            made = answer.json()["id"]
    assert not any(then.values())
    assert api.rows("SELECT FROM celeriac.scheduled_jobs WHERE id = :made", made=made) == []


ASKS = "from tasks.subreddits import STALE_DAYS, crawl; print(float(STALE_DAYS), crawl.role.stale_after / 60)"


@pytest.mark.parametrize(
    ("environ", "told"),
    [({}, "30.0 15.0"), ({"STALE_DAYS": "7", "RESET_CRAWLING_AFTER_MIN": "5"}, "7.0 5.0")],
)
def test_its_variables_have_its_defaults(environ: dict[str, str], told: str) -> None:
    bare = {name: value for name, value in os.environ.items() if name not in ("STALE_DAYS", "RESET_CRAWLING_AFTER_MIN")}
    run = finished([sys.executable, "-c", ASKS], bare | environ)
    assert run.stdout.strip() == told
