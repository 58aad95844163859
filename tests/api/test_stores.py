"""The stores' endpoints, over HTTP, on rows: generating, migrating, asking for one store."""

from __future__ import annotations

import itertools

from tests.api.server import Api
from tests.api.works import audited, task

_number = itertools.count(1)

OPEN = """
INSERT INTO dispensaries (platform, menu_url, name, state, platform_dispensary_id)
VALUES ('dutchie', :url, :url, :state, :url) RETURNING id
"""


def store(api: Api, state: str = "AZ") -> int:
    """A resolved store's id."""
    made = api.rows.one(OPEN, url=f"https://dutchie.com/dispensary/{next(_number)}", state=state)
    assert isinstance(made, int)
    return made


def resyncs(api: Api, *stores: int) -> int:
    keys = [f"dispensary_id:{one}" for one in stores]
    wanted = "SELECT count(*) FROM worker_tasks WHERE role = 'product_resync' AND lock_key = ANY(:keys)"
    return int(str(api.rows.one(wanted, keys=keys)))


def test_a_days_resyncs_are_generated_once(api: Api) -> None:
    mine = [store(api) for _ in range(3)]
    body = {"batches_per_day": 6, "date": "2125-01-10"}
    assert api.post("/api/tasks/generate/resync", body, scope="enqueue")["created"] >= 3
    assert api.post("/api/tasks/generate/resync", body)["created"] == 0
    assert resyncs(api, *mine) == 3
    assert api.post("/api/tasks/generate/resync", body | {"date": "2125-01-09"})["created"] >= 3, "the day before it"
    sent = api.post("/api/tasks", {"role": "product_resync", "dispensary_id": mine[0]})
    assert sent["is_new"], "nor does one that may start now find its key taken"
    assert audited(api, "stores", "resync")
    api.refused(422, "POST", "/api/tasks/generate/resync", json={"batches_per_day": 0})


def test_a_discovery_is_generated(api: Api) -> None:
    made = api.post("/api/tasks/generate/discovery", {"platform": "dutchie", "state_code": "NV"}, scope="enqueue")
    assert api.rows("SELECT role, kwargs FROM worker_tasks WHERE id = :i", i=made["id"]) == [
        ("store_discovery", {"platform": "dutchie", "state_code": "NV"})
    ]
    again = api.ask("POST", "/api/tasks/generate/discovery", json={"state_code": "NV"})
    assert (again.status_code, again.json()) == (200, made | {"is_new": False})
    document = api.refused(422, "POST", "/api/tasks/generate/discovery", json={"platform": "nobody's"})
    assert [error["field"] for error in document["errors"]] == ["platform"]


def test_the_old_systems_are_told_and_stopped_step_by_step(api: Api) -> None:
    before = len(audited(api, "stores", "disable-old-schedules"))
    api.rows("INSERT INTO job_schedules (job_name, enabled, base_interval_minutes) VALUES ('old', true, 240)")
    here = store(api, "UT")
    api.rows("INSERT INTO dispensary_crawl_jobs (dispensary_id, job_type) VALUES (:s, 'crawl')", s=here)
    assert api.get("/api/tasks/migration/status")["told"]["complete"] is False
    steps = "/api/tasks/migration"
    assert api.post(f"{steps}/disable-old-schedules", {"dry_run": True})["told"]["disabled"] == 1
    assert api.rows.one("SELECT bool_and(enabled) FROM job_schedules") is True, "a dry run leaves it as it was"
    assert api.post(f"{steps}/disable-old-schedules")["told"]["disabled"] == 1
    assert api.rows.one("SELECT bool_or(enabled) FROM job_schedules") is False
    assert api.post(f"{steps}/cancel-pending-crawl-jobs")["told"]["cancelled"] == 1
    assert api.rows.one("SELECT status FROM dispensary_crawl_jobs") == "cancelled"
    assert api.post(f"{steps}/create-resync-tasks", {"state_code": "UT"})["told"]["created"] == 1
    assert resyncs(api, here) == 1
    assert api.get("/api/tasks/migration/status")["told"]["complete"] is True
    assert len(audited(api, "stores", "disable-old-schedules")) == before + 1, "the dry run left none"


def test_all_of_the_migration_in_one_call(api: Api) -> None:
    here = store(api, "CO")
    told = api.post("/api/tasks/migration/full-migrate")["told"]
    assert told["resyncs"]["created"] >= 1
    assert resyncs(api, here) == 1
    assert audited(api, "stores", "full-migrate")


def test_a_task_is_created_with_the_documents_fields_as_they_stand(api: Api) -> None:
    here = store(api)
    body = {"role": "product_resync", "dispensary_id": here, "platform": "dutchie", "priority": 5,
        "scheduled_for": "2125-01-10T06:00:00Z", "max_retries": 3}  # fmt: skip
    made = api.post("/api/tasks", body, scope="enqueue")
    told = "SELECT role, dispensary_id, platform, priority, max_retries, status FROM worker_tasks WHERE id = :id"
    assert api.rows(told, id=made["id"]) == [("product_resync", here, "dutchie", 5, 3, "pending")]


def test_whether_a_store_has_an_active_task(api: Api) -> None:
    here = store(api)
    assert api.get(f"/api/tasks/store/{here}/active") == {"store": here, "active": False, "task": None}
    running = task(api, "running", role="product_discovery", lock_key=f"dispensary_id:{here}")
    told = api.get(f"/api/tasks/store/{here}/active")
    assert (told["active"], told["task"]["id"]) == (True, running)


def test_a_store_is_resynced_now_once(api: Api) -> None:
    here = store(api)
    answers = [api.ask("POST", f"/api/tasks/store/{here}/run-now", scope="enqueue") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    first, second = (answer.json() for answer in answers)
    assert second == first | {"is_new": False}
    assert resyncs(api, here) == 1
    api.refused(404, "POST", "/api/tasks/store/999999999/run-now")


def test_a_resync_behind_another_of_the_stores_tasks_says_so(api: Api) -> None:
    here = store(api)
    task(api, "running", role="elsewhere", lock_key=f"dispensary_id:{here}")
    assert api.post(f"/api/tasks/store/{here}/run-now")["waits_for"] == "lock"


def test_tasks_of_a_store_are_asked_for_by_its_id(api: Api) -> None:
    """As the column of `worker_tasks` is called; a name that no handler has is a slip, and `view` sees no arguments."""
    here, there = store(api), store(api)
    body = {"role": "product_resync"}
    mine, _ = (api.post("/api/tasks", body | {"dispensary_id": one})["id"] for one in (here, there))
    for query in (f"role=product_resync&dispensary_id={here}", f"dispensary_id={here}", f"arg.dispensary_id={here}"):
        assert [one["id"] for one in api.get(f"/api/tasks?{query}")["tasks"]] == [mine], query
    assert [one["id"] for one in api.get(f"/api/admin/jobs?role=product_resync&dispensary_id={here}")["jobs"]] == [mine]
    assert api.refused(422, "GET", f"/api/tasks?dispensary_ids={here}")["errors"][0]["field"] == "dispensary_ids"
    api.refused(422, "GET", f"/api/tasks?dispensary_id={here}&arg.dispensary_id={here}")
    api.refused(422, "GET", f"/api/audit?dispensary_id={here}")
    api.refused(403, "GET", f"/api/tasks?dispensary_id={here}", scope="view")
