"""Safe by default: who gets in, how much they may send, and what no answer ever tells."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.api.server import Api, problem, serving
from tests.processes import until


def test_health_asks_for_no_token(api: Api) -> None:
    assert api.http.get("/healthz").json() == {"status": "ok"}
    assert api.http.get("/readyz").json() == {"status": "ready", "redis": "answers"}


def but_for_numbers(finding: dict[str, Any]) -> dict[str, Any]:
    """Return a finding without what grows by the second."""
    return finding | {"says": re.sub(r"\d+", "N", finding["says"])}


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_tells_a_token_that_reads_what_the_doctor_does(api: Api, path: str) -> None:
    api.rows("INSERT INTO worker_tasks (task_id, role) SELECT 'nobody serves it', 'unheard_of'")
    try:
        wrong = until(lambda: api.get(path).get("wrong"), "the doctor to answer in time")
        findings = [one for one in api.get("/api/doctor")["findings"] if not one["ok"]]
        assert [*map(but_for_numbers, wrong)] == [*map(but_for_numbers, findings)]
        assert [one["runbook"] for one in wrong if "unheard_of" in one["says"]] == ["docs/runbooks/no_worker.md"]
    finally:
        api.rows("DELETE FROM worker_tasks WHERE role = 'unheard_of'")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_answers_whoever_asks_and_tells_those_who_may_not_read_nothing(api: Api, path: str) -> None:
    submits = api.token(f"only submits {path}", "submit")
    for presented in (submits, "celeriac_0123456789abcdef_x", "x"):
        answer = api.ask_with(presented, "GET", path)
        assert (answer.status_code, answer.json()) == (200, api.http.get(path).json())


@pytest.mark.parametrize(
    "path", ["/", "/api/tasks", "/openapi.json", "/docs", "/no/such/path", "//healthz", "/healthz/"]
)
def test_nothing_else_tells_a_stranger_even_that_it_is_there(api: Api, path: str) -> None:
    answer = api.http.get(path)
    assert problem(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "authorization", ["Basic YTpi", "Bearer", "Bearer x", "bearer celeriac_0123456789abcdef_x", "x"]
)
def test_what_is_no_token_of_ours_is_refused(api: Api, authorization: str) -> None:
    answer = api.http.get("/api/tasks", headers={"Authorization": authorization})
    assert problem(answer, 401)["detail"] == "this token is not valid, or no longer"


def test_a_revoked_token_is_refused_from_the_next_request_on(api: Api) -> None:
    token = api.token("for a while", "read")
    assert api.ask_with(token, "GET", "/openapi.json").status_code == 200
    api.rows("UPDATE celeriac.api_tokens SET revoked_at = now() WHERE name = 'for a while'")
    assert problem(api.ask_with(token, "GET", "/openapi.json"), 401)


def test_every_answer_has_the_security_headers(api: Api) -> None:
    for answer in (api.http.get("/healthz"), api.http.get("/api/tasks"), api.ask("GET", "/no/such/path")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "server" not in answer.headers


def test_what_is_not_there_and_what_cannot_be_done_are_problems(api: Api) -> None:
    assert api.refused(404, "GET", "/no/such/path")["instance"] == "/no/such/path"
    for path, allowed in (
        ("/healthz", "GET, HEAD"),
        ("/api/tasks", "GET, HEAD, POST"),
        ("/api/tasks/cancel", "POST"),
        ("/api/tasks/bulk", "POST"),
        ("/api/accounts/a/b/pause", "POST"),
        ("/api/v1/accounts/a/b", "GET, HEAD, PUT"),
    ):
        answer = api.ask("PATCH", path)
        assert problem(answer, 405)
        assert answer.headers["allow"] == allowed


@pytest.mark.parametrize("path", ["/api/roles", "/api/tasks", "/api/audit", "/api/tasks/role/sync/recent"])
def test_a_parameter_that_does_not_exist_is_a_slip(api: Api, path: str) -> None:
    document = api.refused(422, "GET", f"{path}?limmit=5")
    assert [(error["where"], error["field"]) for error in document["errors"]] == [("query", "limmit")]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/dead-letters?name=a&name=b", "name"), ("/api/tasks?after=7&after=8", "after"),
        ("/api/roles?limit=1&limit=1", "limit"),
        ("/api/tasks?status=failed&role=a&status=cancelled&role=b", "role"),
    ],
)  # fmt: skip
def test_a_parameter_that_is_no_list_is_given_once(api: Api, path: str, name: str) -> None:
    """Which of two values would hold, a caller could only guess."""
    document = api.refused(422, "GET", path)
    assert [(error["where"], error["field"]) for error in document["errors"]] == [("query", name)]


def test_a_parameter_that_is_a_list_is_given_several_times(api: Api) -> None:
    assert api.get("/api/tasks?status=failed&status=cancelled&limit=1")["tasks"] is not None


def test_head_is_get_without_the_body(api: Api) -> None:
    asked, got = (api.ask(method, "/openapi.json") for method in ("HEAD", "GET"))
    assert (asked.status_code, asked.content) == (200, b"")
    assert asked.headers["content-length"] == got.headers["content-length"]
    assert api.ask("HEAD", "/no/such/path").status_code == 404


def test_a_large_body_is_refused_whether_it_says_so_or_not(api: Api) -> None:
    large = b"[" + b" " * 1_100_000 + b"]"
    json = {"Content-Type": "application/json"}
    assert api.refused(413, "POST", "/api/tasks", content=large, headers=json)
    assert api.refused(
        413, "POST", "/api/tasks", content=(large[i : i + 100_000] for i in range(0, 1_100_000, 100_000)), headers=json
    )


def test_a_body_that_is_no_json_is_told_as_such(api: Api) -> None:
    document = api.refused(422, "POST", "/api/tasks", content=b"{", headers={"Content-Type": "application/json"})
    assert document["errors"][0]["where"] == "body"


def test_a_token_that_asks_too_often_waits(api: Api, servers, database_of_the_api, tmp_path) -> None:
    limits = {"CELERIAC_API_REQUESTS_PER_SECOND": "2", "CELERIAC_API_FAILURES_PER_MINUTE": "5"}
    token, other = api.token("busy", "read"), api.token("quiet", "read")
    with serving(database_of_the_api, servers.redis_url, tmp_path / "log", **limits) as slow:
        answers = [slow.ask_with(token, "GET", "/openapi.json") for _ in range(8)]
        assert [a.status_code for a in answers[:4]] == [200] * 4
        refused = problem(answers[-1], 429)
        assert "'busy' asks too often" in refused["detail"]
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert slow.ask_with(other, "GET", "/openapi.json").status_code == 200
        wrong = [slow.ask_with("wrong", "GET", "/openapi.json").status_code for _ in range(8)]
        assert wrong[:5] == [401] * 5
        assert wrong[-1] == 429
        assert slow.ask_with(f"celeriac_{'0' * 16}_{'x' * 43}", "GET", "/openapi.json").status_code == 429
        assert slow.ask_with(other, "GET", "/openapi.json").status_code == 200, "others' failures lock nobody out"


@pytest.mark.parametrize(
    "body", [b"[" * 200_000, b'{"role": ' + b"9" * 10_000 + b"}", b"\xff\xfe", b'"' + b"\\ud800" + b'"']
)
def test_a_body_made_to_break_the_reader_breaks_nothing(api: Api, body: bytes) -> None:
    answer = api.ask("POST", "/api/tasks", content=body, headers={"Content-Type": "application/json"})
    assert problem(answer, answer.status_code)
    assert answer.status_code in (400, 422)


def test_the_dashboard_is_served_beside_the_api_and_guards_itself(api: Api) -> None:
    """A session opens the dashboard, a header the API, and neither the other one."""
    asked = api.http.get("/admin")
    assert (asked.status_code, asked.headers["location"]) == (303, "admin/sign-in")
    cookie = {"Cookie": f"celeriac={api.session('read')}"}
    page = api.http.get("/admin", headers=cookie)
    assert "Task Queue Summary" in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert api.http.get("/api/tasks", headers=cookie).status_code == 401
    assert api.ask("GET", "/admin/tasks").status_code == 303
    assert api.http.get("/administration").status_code == 401
