"""`/api/v1` is `/api`: the same routes, whose answers are the same."""

from __future__ import annotations

from tests.api.described import document
from tests.api.server import Api
from tests.api.works import row, task


def test_the_same_routes_answer_under_both_names(api: Api) -> None:
    waiting = task(api, account="versions")
    for path in (f"/tasks/{waiting}", "/tasks?account=versions", "/admin/jobs?limit=1", "/accounts"):
        assert api.get(f"/api/v1{path}") == api.get(f"/api{path}")
    assert api.post("/api/v1/tasks/cancel", {"ids": [waiting], "why": "under both"})["changed"] == [waiting]
    assert row(api, waiting, "status") == ("cancelled",)


def test_an_error_names_the_path_that_was_asked_for(api: Api) -> None:
    assert api.refused(404, "GET", "/api/v1/tasks/999999999")["instance"] == "/api/v1/tasks/999999999"
    assert api.refused(404, "GET", "/api/v1/none")["instance"] == "/api/v1/none"
    (error,) = api.refused(422, "GET", "/api/v1/tasks?colour=red")["errors"]
    assert error["field"] == "colour"
    answer = api.ask("DELETE", "/api/v1/audit")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert api.ask_with(None, "GET", "/api/v1/tasks").status_code == 401
    for path in ("/api/v1", "/api/v2/tasks", "/api/v1/v1/tasks"):
        api.refused(404, "GET", path)


def test_the_document_lists_each_route_once() -> None:
    assert [path for path in document()["paths"] if path.startswith("/api/v1")] == []
