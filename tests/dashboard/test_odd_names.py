"""Tasks whose ids look like numbers, paths or commands are the same task on every surface."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from celeriac.dashboard.address import path_to
from celeriac.errors import BadArguments
from tests.dashboard.odd import IDS, api, command
from tests.dashboard.site import Site


@pytest.fixture(scope="module", autouse=True)
def numbered_far_away(of_module: Site) -> None:
    """No row has a number that is one of the ids."""
    of_module.rows("ALTER SEQUENCE celeriac.tasks_id_seq RESTART 1000000")


def status(site: Site, row: int) -> Any:
    return site.rows.one("SELECT status FROM worker_tasks WHERE id = :row", row=row)


@pytest.mark.parametrize("name", IDS, ids=lambda name: name[:20])
def test_an_odd_id_is_the_same_task_on_every_surface(still: Site, name: str) -> None:
    site = still
    made = site.app.send_task("crawl", [1], task_id=name)
    assert made.id == name
    assert site.rows.one("SELECT task_id FROM worker_tasks WHERE id = :row", row=made.row_id) == name
    again = site.rows(
        "SELECT id, is_new FROM celeriac.enqueue('crawl', '{\"store_id\": 1}', task_id => :name)", name=name
    )
    assert again == [(made.row_id, False)]
    sent = api(site, "POST", "tasks", json={"role": "crawl", "kwargs": {"store_id": 1}, "task_id": name})
    assert (sent.status_code, sent.json()["id"]) == (200, made.row_id), sent.text

    assert site.app.why(name).task["id"] == made.row_id
    for way in {f"task_id={name}", *([name] if name not in ("counts", ".", "..") else [])}:
        at = f"tasks/{quote(way, safe='')}"
        found = api(site, "GET", at)
        assert (found.status_code, found.json().get("id")) == (200, made.row_id), (way, found.text)
        assert api(site, "GET", f"{at}/why").json()["task"]["id"] == made.row_id, way
        assert api(site, "GET", f"v1/{at}/history").json()["task"]["task_id"] == name, way
        page = site.get(path_to("tasks", way), "admin")
        assert (page.status_code, page.headers["location"].rpartition("/")[2]) == (303, str(made.row_id)), way
    shown = command(site, "tasks", "show", "--json", f"task_id={name}")
    assert shown.exit_code == 0, shown.output
    assert f'"id": {made.row_id}' in shown.stdout

    assert command(site, "tasks", "prioritise", "7", "--", name).exit_code == 0
    cancelled = api(site, "POST", "tasks/cancel", json={"ids": [name]})
    assert cancelled.json()["changed"] == [made.row_id], cancelled.text
    assert status(site, made.row_id) == "cancelled"
    retried = api(site, "POST", "tasks/retry", json={"ids": [name]})
    assert retried.json()["changed"] == [made.row_id], retried.text
    site.app.control.revoke(site.app.AsyncResult(name))
    assert status(site, made.row_id) == "cancelled"


def test_an_id_that_is_a_number_never_means_another_task_s_row(site: Site) -> None:
    """Each surface refuses what may mean two tasks, changes neither, and says how to write which."""
    other = site.app.send_task("crawl", [1])
    number = str(other.row_id)
    mine = site.app.send_task("crawl", [2], task_id=number)

    cancelled = command(site, "tasks", "cancel", number)
    assert cancelled.exit_code != 0
    assert f"write id={number} or task_id={number}" in cancelled.stderr
    refusals = [
        api(site, "POST", "tasks/cancel", json={"ids": [number]}),
        api(site, "GET", f"tasks/{number}"),
    ]
    assert [refused.status_code for refused in refusals] == [422] * 2
    assert all(f"task_id={number}" in refused.json()["detail"] for refused in refusals)
    hits = site.html(f"go?q={number}")
    assert all(f'tasks/{one.row_id}"' in hits for one in (other, mine))
    assert [status(site, other.row_id), status(site, mine.row_id)] == ["pending", "pending"]

    assert site.app.why(number).task["id"] == mine.row_id, "in Python a text is a task_id"
    assert site.app.why(other.row_id).task["id"] == other.row_id, "and a number a row's"
    assert api(site, "GET", f"tasks/id={number}").json()["id"] == other.row_id
    assert api(site, "GET", f"tasks/task_id={number}").json()["id"] == mine.row_id
    assert command(site, "tasks", "cancel", f"task_id={number}").exit_code == 0
    assert [status(site, other.row_id), status(site, mine.row_id)] == ["pending", "cancelled"]
    again = site.app.send_task("crawl", [3], task_id=str(other.row_id + 1_000_000))
    assert command(site, "tasks", "cancel", again.id).exit_code == 0, "no row has that number"
    assert site.app.cancel(number) is None, "it is over: nobody else's row is meant"
    site.app.control.revoke(number)
    api(site, "POST", "tasks/cancel", json={"ids": [other.row_id]})
    assert status(site, other.row_id) == "cancelled", "a number of JSON is a row's"


@pytest.mark.parametrize("name", ["nul\0", "x" * 1001, "nightly@2031-01-01T00:00:00Z", "\ud800"], ids=repr)
def test_an_id_no_surface_could_name_is_refused_by_the_call(still: Site, name: str) -> None:
    site = still
    with pytest.raises(BadArguments, match="task_id"):
        site.app.send_task("crawl", [1], task_id=name)
    if name.isprintable():
        sent = api(site, "POST", "tasks", json={"role": "crawl", "kwargs": {"store_id": 1}, "task_id": name})
        assert (sent.status_code, sent.json()["errors"][0]["field"]) == (422, "task_id")


def test_a_revoke_takes_results_and_refuses_what_names_no_task(site: Site) -> None:
    first, second, third = (site.app.send_task("crawl", [n]) for n in range(3))
    site.app.control.revoke([first, second.id])
    third.revoke()
    assert {status(site, one.row_id) for one in (first, second, third)} == {"cancelled"}
    for wrong in (7, [None], {"id": 1}, b"x"):
        with pytest.raises(BadArguments, match="nothing was revoked"):
            site.app.control.revoke(wrong)
    for act in (site.app.cancel, site.app.hasten):
        with pytest.raises(BadArguments, match="give a task_id, a text"):
            act(7)


@pytest.mark.parametrize("name", ["anna/berlin", "100%", "a b", "%2F"])
def test_accounts_roles_workflows_and_keys_with_slashes_are_reached_over_http(still: Site, name: str) -> None:
    site = still
    made = site.app.send_task("crawl", [1], account=name, lock_key=name)
    site.rows("UPDATE celeriac.tasks SET workflow = :name WHERE id = :row", name=name, row=made.row_id)
    quoted = quote(name, safe="")
    assert api(site, "POST", f"accounts/{quoted}/pause", json={}).json()["after"]["paused"]
    assert api(site, "GET", f"accounts/{quoted}").json()["account"] == name
    assert api(site, "GET", f"workflows/{quoted}").json()["id"] == name
    assert api(site, "GET", f"roles/{quoted}").json()["detail"].startswith("there is no role")
    assert f"Workflow {name}" in site.html(f"workflows/{quoted}")
