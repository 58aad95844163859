"""The crawl jobs' admin endpoints, over HTTP, on rows."""

from __future__ import annotations

import pytest

from tests.api.server import Api
from tests.api.works import audited, row, task

JOBS = "/api/admin/jobs"


def test_a_failed_job_can_be_queued(api: Api) -> None:
    job = task(api, "failed")
    changed = api.put(f"{JOBS}/{job}/status", {"status": "queued", "why": "the store is back"}, scope="operate")
    assert changed["after"]["status"] == "pending"
    assert row(api, job, "status, retry_count, error_message") == ("pending", 0, None)
    ((by, action, before, after, why),) = audited(api, "task", job)
    assert (by, action, why) == (f"operate {api.url}", "retry", "the store is back")
    assert (before["status"], after["status"]) == ("failed", "pending")


@pytest.mark.parametrize("status", ["pending", "claimed"])
def test_a_queued_job_stays_queued(api: Api, status: str) -> None:
    job = task(api, status)
    assert api.put(f"{JOBS}/{job}/status", {"status": "queued"})["after"] == {"status": status}
    done = api.put(f"{JOBS}/bulk/status", {"job_ids": [job], "status": "queued"})
    assert (done["changed"], done["refused"]) == ([job], [])
    assert row(api, job, "status") == (status,)
    assert audited(api, "task", job) == []


def test_a_queued_job_can_be_failed(api: Api) -> None:
    job = task(api, "pending")
    api.put(f"{JOBS}/{job}/status", {"status": "failed"})
    assert row(api, job, "status") == ("cancelled",)


@pytest.mark.parametrize(
    ("status", "asked", "reason"),
    [
        ("running", "queued", "the task is running"),
        ("completed", "queued", "the task is completed"),
        ("completed", "failed", "it is over"),
        ("pending", "crawling", "only its worker"),
        ("running", "success", "only its worker"),
    ],
)
def test_what_the_life_of_a_job_does_not_allow_is_refused_with_the_reason(
    api: Api, status: str, asked: str, reason: str
) -> None:
    job = task(api, status)
    document = api.refused(409, "PUT", f"{JOBS}/{job}/status", json={"status": asked})
    assert reason in document["detail"]
    assert document["type"] == "urn:celeriac:problem:illegal-move"
    assert row(api, job, "status") == (status,)
    assert audited(api, "task", job) == []


def test_a_word_that_is_no_status_is_refused_by_its_field(api: Api) -> None:
    document = api.refused(422, "PUT", f"{JOBS}/{task(api)}/status", json={"status": "done"})
    assert [(e["where"], e["field"]) for e in document["errors"]] == [("body", "status")]


def test_a_status_is_set_by_any_of_its_words(api: Api) -> None:
    job = task(api)
    api.put(f"{JOBS}/{job}/status", {"status": "terminated"})
    assert row(api, job, "status") == ("cancelled",)
    api.put(f"{JOBS}/{job}/status", {"status": "waiting"})
    assert row(api, job, "status") == ("pending",)
    api.refused(409, "PUT", f"{JOBS}/{job}/status", json={"status": "stale"})


def test_a_priority_is_set(api: Api) -> None:
    job = task(api)
    api.put(f"{JOBS}/{job}/priority", {"priority": 50})
    assert row(api, job, "priority") == (50,)
    assert [entry[1:4] for entry in audited(api, "task", job)] == [("priority", {"priority": 0}, {"priority": 50})]


def test_a_boost_adds_up_to_a_hundred(api: Api) -> None:
    job = task(api, priority=70)
    assert api.post(f"{JOBS}/{job}/boost", {"boost": 20})["after"] == {"priority": 90}
    assert api.post(f"{JOBS}/{job}/boost", {"boost": 20})["after"] == {"priority": 100}
    assert row(api, job, "priority") == (100,)


def test_a_finished_job_is_not_boosted(api: Api) -> None:
    assert (
        "it is over" in api.refused(409, "POST", f"{JOBS}/{task(api, 'completed')}/boost", json={"boost": 1})["detail"]
    )


def test_a_failed_job_is_retried_with_all_its_attempts(api: Api) -> None:
    job = task(api, "failed")
    assert api.ask("POST", f"{JOBS}/{job}/retry").status_code == 200, "the seed sends no body"
    assert row(api, job, "status, retry_count") == ("pending", 0)


def test_a_running_job_is_not_retried(api: Api) -> None:
    job = task(api, "running")
    assert "the task is running" in api.refused(409, "POST", f"{JOBS}/{job}/retry")["detail"]
    assert row(api, job, "status") == ("running",)


def test_no_such_job(api: Api) -> None:
    assert "no task '999999999'" in api.refused(404, "POST", f"{JOBS}/999999999/retry")["detail"]
    assert "no task 'first'" in api.refused(404, "POST", f"{JOBS}/first/retry")["detail"]


def test_many_get_a_status_and_each_refusal_its_reason(api: Api) -> None:
    failed, running = task(api, "failed"), task(api, "running")
    answer = api.put(f"{JOBS}/bulk/status", {"job_ids": [failed, running, 999_999_999], "status": "queued"})
    assert (answer["changed"], answer["missing"]) == ([failed], [999_999_999])
    assert [(r["id"], "the task is running" in r["reason"]) for r in answer["refused"]] == [(running, True)]
    assert row(api, failed, "status") == ("pending",)
    assert row(api, running, "status") == ("running",)


def test_many_are_retried(api: Api) -> None:
    jobs = [task(api, "failed") for _ in range(5)]
    assert api.post(f"{JOBS}/bulk/retry", {"job_ids": jobs})["changed"] == jobs
    assert api.rows.one("SELECT count(*) FROM worker_tasks WHERE id = ANY(:j) AND status = 'pending'", j=jobs) == 5
    assert all(len(audited(api, "task", job)) == 1 for job in jobs)
    named = task(api, "failed", task_id="a job of that name")
    assert api.post(f"{JOBS}/bulk/retry", {"job_ids": ["a job of that name"]})["changed"] == [named]
