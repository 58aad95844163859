"""A move of all tasks that a filter means, however many, on a running server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.server import Api
from tests.api.works import audited, row, task
from tests.processes import until


def begun(api: Api, move: str, wanted: dict[str, Any], **fields: Any) -> int:
    """Begin a bulk; return its number."""
    body = {"filter": wanted, "later": True, "dry_run": False} | fields
    return int(api.post(f"/api/tasks/{move}", body)["bulk"])


def over(api: Api, number: int) -> dict[str, Any]:
    until(lambda: api.get(f"/api/bulk/{number}")["ended_at"] is not None, "the bulk to end")
    found: dict[str, Any] = api.get(f"/api/bulk/{number}")
    return found


def test_a_bulk_is_asked_for_worked_on_and_told(api: Api) -> None:
    failed = [task(api, "failed", "crawl_subreddit", account="bulk 1") for _ in range(3)]
    number = begun(api, "retry", {"account": "bulk 1"}, why="mended")
    done = over(api, number)
    assert (done["state"], done["asked"], done["done"], done["skipped"], done["left"]) == ("done", 3, 3, 0, 0)
    assert done["reasons"] == {}
    assert (done["filter"], done["why"]) == ({"account": "bulk 1"}, "mended")
    assert {row(api, one, "status")[0] for one in failed} <= {"pending", "claimed"}
    assert [a[1] for a in audited(api, "bulk", number)] == ["bulk retry", "end"]
    assert api.get("/api/bulk?limit=1")["bulks"][0] == done
    assert api.refused(409, "DELETE", f"/api/bulk/{number}")["detail"].endswith("is done; nothing was changed")


def test_a_bulk_is_stopped(api: Api) -> None:
    """One that somebody has in hand, and so does not end meanwhile."""
    task(api, "failed", "crawl_subreddit", account="bulk 2")
    with api.rows.engine.connect() as somebody:
        somebody.exec_driver_sql("BEGIN")
        somebody.exec_driver_sql("SELECT FROM celeriac.history WHERE account = 'bulk 2' FOR UPDATE")
        number = begun(api, "retry", {"account": "bulk 2"})
        stopped = api.delete(f"/api/bulk/{number}", params={})
        somebody.exec_driver_sql("ROLLBACK")
    assert stopped["after"]["state"] == "stopped"
    assert over(api, number)["done"] == 0


def test_a_bulk_is_counted_first_and_gives_a_priority(api: Api) -> None:
    waits = task(api, account="bulk 3")
    wanted = {"filter": {"account": "bulk 3"}, "priority": 70, "later": True}
    told = api.post("/api/tasks/prioritise", wanted)
    assert (told["dry_run"], told["matching"], told["bulk"]) == (True, 1, None)
    assert over(api, begun(api, "prioritise", {"account": "bulk 3"}, priority=70))["done"] == 1
    assert row(api, waits, "priority") == (70,)


@pytest.mark.parametrize(
    "body",
    [
        {}, {"ids": [1], "filter": {"account": "bulk 3"}}, {"filter": {}}, {"ids": []},
        {"filter": {"account": "bulk 3"}, "later": True, "goes_on": True},
    ],
)  # fmt: skip
def test_a_move_is_of_named_tasks_or_of_a_filter(api: Api, body: dict[str, Any]) -> None:
    api.refused(422, "POST", "/api/tasks/retry", json=body | {"dry_run": False})


@pytest.mark.parametrize("field", [{"dry_run": True}, {"later": True}, {"most": 1}])
def test_named_tasks_are_not_changed_by_what_narrows_a_filter(api: Api, field: dict[str, Any]) -> None:
    waits = task(api, account="bulk 4")
    document = api.refused(422, "POST", "/api/tasks/cancel", json={"ids": [waits]} | field)
    assert [f"{name}: of a filter" in document["errors"][0]["message"] for name in field] == [True]
    assert row(api, waits, "status") == ("pending",)


def test_one_that_is_not_there_is_told(api: Api) -> None:
    assert api.refused(404, "GET", "/api/bulk/99999999")["detail"] == "there is no bulk 99999999"


def test_a_bulk_that_no_step_could_take_is_refused_as_it_is_asked_for(api: Api) -> None:
    """Accepted, it would be tried again until somebody stops it."""
    for wanted in ({"arguments": {"note": "x" * 9_000}}, {"role": "crawl", "arguments": {"note": "\x00"}}):
        api.refused(422, "POST", "/api/tasks/cancel", json={"filter": wanted, "later": True, "dry_run": False})
    assert api.rows.one("SELECT count(*) FROM bulk_actions WHERE filter -> 'arguments' ? 'note'") == 0
