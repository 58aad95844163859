"""Reading tasks over HTTP: lists, counts, capacity, history; and what recovers the stale."""

from __future__ import annotations

import json
from collections import Counter
from typing import get_args

import pytest

from celeriac.api.tasks import CheckName
from celeriac.insights.why.why import ORDER
from celeriac.store.states import WORDS
from tests.api.server import Api
from tests.api.works import audited, row, task


def ids(page: dict) -> list[int]:
    return [item["id"] for item in page["tasks"]]


def test_tasks_are_listed_by_what_they_are(api: Api) -> None:
    mine = [task(api, status, account="lists") for status in ("pending", "running", "failed")]
    assert ids(api.get("/api/tasks?account=lists")) == mine[::-1], "newest first"
    assert ids(api.get("/api/tasks?account=lists&status=failed")) == mine[2:]
    assert ids(api.get("/api/tasks?account=lists&status=queued&status=crawling")) == [mine[1], mine[0]]
    assert ids(api.get("/api/tasks?account=lists&role=no_such_role")) == []


def test_lists_are_narrowed_by_age_and_error(api: Api) -> None:
    old, new = (task(api, "failed", account="narrow") for _ in range(2))
    api.rows(
        "UPDATE worker_tasks SET created_at = now() - interval '1 hour', error_message = 'Read TIMEOUT' WHERE id = :i",
        i=old,
    )
    for query, found in (("newer_than=60", new), ("older_than=60", old), ("error=timeout", old), ("error=broken", new)):
        assert ids(api.get(f"/api/tasks?account=narrow&{query}")) == [found], query


def test_lists_and_bulks_are_narrowed_by_priority_and_by_the_schedule_that_made_them(api: Api) -> None:
    low, tick = (task(api, account="ranged", priority=n) for n in (5, 60))
    api.rows("UPDATE celeriac.tasks SET task_id = 'ranged@2031-01-01T00:00:00Z' WHERE id = :i", i=tick)
    for told, meant in (({"priority": "50.."}, tick), ({"priority": "..10"}, low), ({"schedule": "ranged"}, tick)):
        query = "&".join(f"{name}={value}" for name, value in told.items())
        assert ids(api.get(f"/api/tasks?account=ranged&{query}")) == [meant], query
        matched = api.post("/api/tasks/cancel", {"filter": {"account": "ranged", **told}})
        assert matched["matching"] == 1, told
    for wrong in ("high", "1...5", "..", "12345678"):
        assert api.refused(422, "GET", f"/api/tasks?priority={wrong}")["errors"][0]["field"] == "priority"


def test_lists_are_narrowed_by_arguments_however_they_were_given(api: Api) -> None:
    """By name, or by position, as the registered handler's parameters are called."""
    api.rows("""INSERT INTO roles (role, definition, parameters)
        VALUES ('called', '{}', '[{"name": "dispensary_id", "kind": "POSITIONAL_OR_KEYWORD"}, {"name": "note"}]')""")
    named = task(api, role="called", kwargs='{"dispensary_id": 17, "note": "17"}')
    placed = task(api, "failed", role="called", args='[17, {"of": [1]}]')
    other = task(api, role="called", kwargs='{"dispensary_id": 18, "note": null}')
    task(api, role="called", args="[170]")
    for query, found in (
        ("arg.dispensary_id=17", [placed, named]), ("arg.dispensary_id=17.0", [placed, named]),
        ('arg.dispensary_id="17"', []), ("arg.note=17", []), ('arg.note="17"', [named]), ("arg.note=null", [other]),
        ('arg.dispensary_id=17&arg.note={"of": [1]}', [placed]), ("arg.note={}", []), ("arg.other=1", []),
        ("arg.dispensary_id=18&status=queued", [other]),
    ):  # fmt: skip
        assert ids(api.get(f"/api/tasks?role=called&{query}")) == found, query
    assert [job["id"] for job in api.get("/api/admin/jobs?role=called&status=failed&arg.dispensary_id=17")["jobs"]] == [
        placed
    ]
    bulk = {"filter": {"role": "called", "arguments": {"dispensary_id": 17}}}
    assert api.post("/api/tasks/cancel", bulk)["matching"] == 1
    for query, field in (
        ("/api/tasks?arg.=1", "arg."), ("/api/tasks?arg.a=1&arg.a=2", "arg.a"), ("/api/audit?arg.a=1", "arg.a"),
        ("/api/tasks?arg.a=NaN", "arguments"), ("/api/tasks?arg.a=%00", "arguments"),
        ("/api/tasks?arg.%00=1", "arguments"), ("/api/tasks?arg.a%00b=1", "arguments"),
    ):  # fmt: skip
        assert api.refused(422, "GET", query)["errors"][0]["field"] == field
    for name in ("\0", "a\0b", "\ud800"):
        for move, more in (("cancel", {}), ("retry", {}), ("prioritise", {"priority": 3}), ("retry", {"later": True})):
            body = json.dumps({"filter": {"arguments": {name: 1}}, **more})
            refusal = api.refused(
                422, "POST", f"/api/tasks/{move}", content=body, headers={"Content-Type": "application/json"}
            )
            assert refusal["errors"][0]["field"] == "arguments", (name, move)


def test_delayed_is_what_waits_for_its_time(api: Api) -> None:
    task(api, account="delayed")
    later = task(api, account="delayed", waits_for="time")
    assert ids(api.get("/api/tasks?account=delayed&status=delayed")) == [later]


def test_every_word_for_a_status_is_accepted_wherever_one_is(api: Api) -> None:
    failed, cancelled = task(api, "failed"), task(api, "cancelled")
    for word in WORDS:
        for path in ("/api/tasks", "/api/admin/jobs"):
            assert api.ask("GET", f"{path}?status={word}&limit=1").status_code == 200, (path, word)
    silent = task(api, "running", role="silent")
    api.rows("UPDATE worker_tasks SET last_heartbeat_at = now() - interval '1 hour' WHERE id = :id", id=silent)
    assert [found["id"] for found in api.get("/api/tasks?status=stale&role=silent")["tasks"]] == [silent]
    assert [found["id"] for found in api.get("/api/admin/jobs?status=stale&role=silent")["jobs"]] == [silent]
    api.rows("UPDATE worker_tasks SET last_heartbeat_at = now() WHERE id = :id", id=silent)
    assert api.get("/api/tasks?status=stale&role=silent")["tasks"] == []
    ends = {job["id"] for job in api.get("/api/admin/jobs?status=failed&role=instasite_build")["jobs"]}
    assert {failed, cancelled} <= ends
    over = {job["id"] for job in api.get("/api/admin/jobs?status=terminated&role=instasite_build")["jobs"]}
    assert (failed in over, cancelled in over) == (True, False)
    api.refused(422, "GET", "/api/tasks?status=nonesuch")


def test_a_long_list_is_read_page_by_page(api: Api) -> None:
    mine = [task(api, account="pages") for _ in range(5)]
    first = api.get("/api/tasks?account=pages&limit=2")
    second = api.get("/api/tasks", params={"account": "pages", "limit": 2, "after": first["next"]})
    assert ids(first) + ids(second) == mine[:0:-1]
    assert ids(api.get("/api/tasks?account=pages&limit=2&offset=3")) == mine[1::-1]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"), ("limit=1001", "limit"), ("offset=10001", "offset"), ("status=done", "status.0"),
        ("after=x", "after"), ("role=%00", "role"), ("colour=red", "colour"), ("older_than=-1", "older_than"),
    ],
)  # fmt: skip
def test_a_list_that_cannot_be_is_refused_by_its_field(api: Api, query: str, field: str) -> None:
    (error,) = api.refused(422, "GET", f"/api/tasks?{query}")["errors"]
    assert (error["where"], error["field"]) == ("query", field)


def test_a_task_is_found_by_either_id(api: Api) -> None:
    mine = task(api, task_id="my-own-id", kwargs='{"instasite_id": 1}')
    found = api.get(f"/api/tasks/{mine}")
    assert found["kwargs"] == {"instasite_id": 1}
    assert api.get("/api/tasks/my-own-id") == found
    assert "token" not in found, "whoever has a claim's token may settle it"
    assert "pruned" in api.refused(404, "GET", "/api/tasks/999999999")["detail"]


def test_a_history_tells_what_happened_and_why_it_waits(api: Api) -> None:
    failed = task(api, "failed", account="history")
    api.post("/api/tasks/retry", {"ids": [failed], "why": "again"})
    told = api.get(f"/api/tasks/{failed}/history")
    assert [(event["kind"], event["why"]) for event in told["events"]] == [("retry_asked", "again")]
    assert told["why"]
    assert told["task"]["status"] == "pending"
    api.refused(404, "GET", "/api/tasks/999999999/history")


def test_what_a_handler_wrote_to_its_log_is_told(api: Api) -> None:
    mine = task(api, task_id="it wrote")
    api.rows("INSERT INTO celeriac.task_logs (task, attempt, level, line) VALUES (:id, 2, 'INFO', 'page 7')", id=mine)
    (line,) = api.get("/api/tasks/it wrote/log")["lines"]
    assert (line["attempt"], line["level"], line["line"]) == (2, "INFO", "page 7")
    api.refused(404, "GET", "/api/tasks/nobody/log")


def test_why_a_task_has_not_started(api: Api) -> None:
    waiting = task(api, account="why")
    api.post("/api/accounts/why/pause")
    told = api.get(f"/api/tasks/{waiting}/why")
    assert (told["headline"], told["reason"]) == ("its account is paused", "account_paused")
    assert [(c["name"], c["outcome"]) for c in told["checks"][:4]] == [
        ("due", "yes"), ("role", "yes"), ("account", "no"), ("members", "not asked"),
    ]  # fmt: skip
    assert (told["expected"], told["basis"][:16]) == (None, "unknown, because")
    assert told["task"]["id"] == waiting
    assert api.get(f"/api/tasks/{waiting}/history")["why"] == told["headline"]
    assert [c["name"] for c in told["checks"]] == list(get_args(CheckName)) == list(ORDER)
    api.refused(404, "GET", "/api/tasks/999999999/why")


def test_counts_are_those_of_the_rows(api: Api) -> None:
    task(api, "claimed")
    told = api.get("/api/tasks/counts")
    assert told.pop("estimated") == []
    assert told["claimed"] >= 1
    rows = dict(api.rows("SELECT status, count(*) FROM worker_tasks GROUP BY status"))
    assert told == {status: rows.get(status, 0) for status in told}


def test_job_statistics_use_the_seeds_words(api: Api) -> None:
    """And are of crawl jobs alone, which the application calls its jobs."""
    task(api, "cancelled", role="crawl_subreddit")
    task(api, "cancelled")
    told = api.get("/api/admin/jobs/stats")
    counts = api.get("/api/tasks/counts?role=crawl_subreddit")
    assert told["queued"] == counts["pending"] + counts["claimed"]
    assert (told["running"], told["completed"]) == (counts["running"], counts["completed"])
    assert told["failed"] == counts["failed"] + counts["cancelled"]
    of_all = api.get("/api/tasks/counts")
    assert told["failed"] < of_all["failed"] + of_all["cancelled"]
    assert {job["role"] for job in api.get("/api/admin/jobs?limit=1000")["jobs"]} == {"crawl_subreddit"}


def test_statistics_are_of_a_role_where_one_is_named(api: Api) -> None:
    counts = {"pending": 3, "running": 1, "completed": 2, "failed": 4}
    for status in Counter(counts).elements():
        task(api, status, role="counted")
    assert api.get("/api/admin/jobs/stats?role=counted") == {
        "queued": 3, "running": 1, "completed": 2, "failed": 4, "estimated": []
    }  # fmt: skip
    assert api.get("/api/tasks/counts?role=counted")["cancelled"] == 0


def test_jobs_are_listed_by_status_with_limit_and_offset(api: Api) -> None:
    mine = [task(api, "failed", role="listed_jobs") for _ in range(3)]
    task(api, "running", role="listed_jobs")
    page = api.get("/api/admin/jobs?role=listed_jobs&status=failed&limit=2&offset=1")
    assert [job["id"] for job in page["jobs"]] == mine[1::-1]
    assert api.get(f"/api/admin/jobs/{mine[0]}") == page["jobs"][1]
    assert {job["status"] for job in page["jobs"]} == {"failed"}
    assert [job["status"] for job in api.get("/api/admin/jobs?role=listed_jobs&limit=1")["jobs"]] == ["crawling"]
    api.refused(422, "GET", "/api/admin/jobs?status=done")


def test_capacity_says_how_many_workers_clear_the_queue(api: Api) -> None:
    api.rows("INSERT INTO celeriac.roles (role, definition) VALUES ('slow_work', '{\"window\": 10}')")
    api.rows("INSERT INTO celeriac.batchers (role, seconds_per_task) VALUES ('slow_work', 36)")
    for _ in range(150):
        task(api, role="slow_work")
    told = api.get("/api/tasks/capacity/slow_work")
    assert told["pending_tasks"] == 150
    assert told["workers_needed"] == {"for_1_hour": 2, "for_4_hours": 1, "for_8_hours": 1}
    assert told in api.get("/api/tasks/capacity")["roles"]
    api.refused(404, "GET", "/api/tasks/capacity/no_such_role")


def test_metrics_say_how_a_role_goes(api: Api) -> None:
    api.rows("INSERT INTO celeriac.roles (role, definition) VALUES ('measured', '{}')")
    task(api, role="measured", priority=55)
    for status in ("completed", "completed", "completed", "failed"):
        task(api, status, role="measured")
    told = api.get("/api/tasks/metrics/measured")
    assert (told["queue_depth"], told["priorities"]) == (1, {"50": 1})
    assert (told["success_rate"], told["failed_rate"], told["retry_rate"]) == (0.75, 0.25, 0.25)
    assert told["role"] in [role["role"] for role in api.get("/api/tasks/metrics")["roles"]]
    api.refused(404, "GET", "/api/tasks/metrics/no_such_role")


def test_tasks_of_silent_workers_are_recovered(api: Api) -> None:
    silent, alive = task(api, "running"), task(api, "running")
    api.rows("UPDATE worker_tasks SET last_heartbeat_at = now() - interval '11 minutes' WHERE id = :i", i=silent)
    assert api.post("/api/tasks/recover-stale", {"threshold_minutes": 12})["recovered"] == 0
    counted = api.post("/api/tasks/recover-stale", {"threshold_minutes": 10, "dry_run": True})
    assert counted == {"dry_run": True, "matching": 1, "recovered": 0}
    assert row(api, silent, "status") == ("running",)
    assert api.post("/api/tasks/recover-stale", {"threshold_minutes": 10})["recovered"] == 1
    assert row(api, silent, "status, losses") == ("pending", 1)
    assert row(api, alive, "status") == ("running",)
    assert [entry[1:4] for entry in audited(api, "task", silent)] == [
        ("recover-stale", {"status": "running"}, {"status": "pending"})
    ]
    api.refused(422, "POST", "/api/tasks/recover-stale", json={"threshold_minutes": 0})


def test_a_roles_last_and_recent_completions(api: Api) -> None:
    done = [task(api, "completed", role="completions") for _ in range(3)]
    api.rows(
        "UPDATE worker_tasks SET completed_at = now() - (:n - id) * interval '1 s' WHERE id = ANY(:d)",
        n=done[-1],
        d=done,
    )
    task(api, "failed", role="completions")
    assert api.get("/api/tasks/role/completions/last-completion")["task"] == done[-1]
    assert ids(api.get("/api/tasks/role/completions/recent?limit=2")) == [done[2], done[1]]
    assert api.get("/api/tasks/role/no_such_role/last-completion")["last_completion"] is None


def test_a_bulk_by_filter_counts_first_and_changes_then(api: Api) -> None:
    mine = [task(api, "failed", account="bulk") for _ in range(3)]
    waiting = task(api, account="bulk")
    wanted = {"filter": {"account": "bulk"}}
    told = api.post("/api/tasks/retry", wanted)
    assert (told["dry_run"], told["matching"], told["complete"], told["gave_up"], told["changed"]) == (
        True, 3, True, False, []
    )  # fmt: skip
    assert row(api, mine[0], "status") == ("failed",)
    assert api.post("/api/tasks/retry", wanted | {"dry_run": False})["changed"] == mine
    assert all(row(api, one, "status") == ("pending",) for one in [*mine, waiting])
    told = api.post("/api/tasks/cancel", wanted | {"dry_run": False, "most": 2})
    assert (len(told["changed"]), told["complete"]) == (2, False)
    assert len([one for one in [*mine, waiting] if row(api, one, "status") == ("cancelled",)]) == 2


def test_a_bulk_never_means_more_than_its_filter_says(api: Api) -> None:
    """What failed cannot be cancelled: a filter for it meets nothing, and surely not everything."""
    failed, waiting = task(api, "failed", account="narrow"), task(api, account="narrow")
    wanted = {"filter": {"account": "narrow", "status": ["failed"]}, "dry_run": False}
    assert api.post("/api/tasks/cancel", wanted)["matching"] == 0
    assert row(api, waiting, "status") == ("pending",)
    assert row(api, failed, "status") == ("failed",)
    api.refused(422, "POST", "/api/tasks/cancel", json={"filter": {}, "dry_run": False})
    api.refused(422, "POST", "/api/tasks/cancel", json={"filter": {"acount": "x"}, "dry_run": False})
