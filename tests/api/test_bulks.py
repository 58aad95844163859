"""A move of all tasks that a filter means, however many, on a running server."""

from __future__ import annotations

from typing import Any

from tests.api.server import Api
from tests.api.works import audited, row, task
from tests.processes import until


def over(api: Api, number: int) -> dict[str, Any]:
    until(lambda: api.get(f"/api/bulk/{number}")["ended_at"] is not None, "the bulk to end")
    found: dict[str, Any] = api.get(f"/api/bulk/{number}")
    return found


def test_a_bulk_is_asked_for_worked_on_and_told(api: Api) -> None:
    failed = [task(api, "failed", "crawl_subreddit", account="bulk 1") for _ in range(3)]
    asked = api.ask("POST", "/api/bulk", json={"move": "retry", "filter": {"account": "bulk 1"}, "why": "mended"})
    assert asked.status_code == 202
    number = asked.json()["id"]
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
        number = api.post("/api/bulk", {"move": "retry", "filter": {"account": "bulk 2"}})["id"]
        stopped = api.delete(f"/api/bulk/{number}", params={})
        somebody.exec_driver_sql("ROLLBACK")
    assert stopped["after"]["state"] == "stopped"
    assert over(api, number)["done"] == 0


def test_a_priority_is_one_of_prioritise_alone(api: Api) -> None:
    wanted = {"account": "bulk 3"}
    assert api.refused(422, "POST", "/api/bulk", json={"move": "prioritise", "filter": wanted})["errors"][0][
        "field"
    ] == ("priority")
    for body in ({"move": "retry", "filter": {}}, {"move": "forget", "filter": wanted}):
        api.refused(422, "POST", "/api/bulk", json=body)
    assert api.refused(404, "GET", "/api/bulk/99999999")["detail"] == "there is no bulk 99999999"


def test_a_bulk_that_no_step_could_take_is_refused_as_it_is_asked_for(api: Api) -> None:
    """Accepted, it would be tried again until somebody stops it."""
    for wanted in ({"arguments": {"note": "x" * 9_000}}, {"role": "crawl", "arguments": {"note": "\x00"}}):
        api.refused(422, "POST", "/api/bulk", json={"move": "cancel", "filter": wanted})
    assert api.rows.one("SELECT count(*) FROM bulk_actions WHERE filter -> 'arguments' ? 'note'") == 0
