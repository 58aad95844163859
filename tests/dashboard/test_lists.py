"""Lists of tasks: how they are filtered, paged and exported, and how the box finds one thing."""

from __future__ import annotations

import csv
import html
import json
import re
from typing import Any

import pytest
from psycopg2 import OperationalError
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from celeriac import insights
from celeriac.insights.tasks import exports, lists
from tests.api.works import task
from tests.dashboard.site import Site, worker


def test_states_have_the_names_of_other_systems_too(site: Site) -> None:
    running = task(site, "running", "crawl")
    found = site.html("tasks?state=crawling")
    assert f"#{running}" in found
    assert 'title="crawling, active"' in found


def test_a_filter_is_an_address_and_what_is_none_is_said(site: Site) -> None:
    mine, other = task(site, "failed", "crawl", lock_key="store 7"), task(site, "failed", "resync")
    found = site.html("tasks?role=crawl&state=failed")
    assert f"#{mine}" in found
    assert f"#{other}" not in found
    assert "colour: no such filter here" in site.html("tasks?colour=red")
    assert site.get("tasks?role=crawl&state=").headers["location"] == "?role=crawl"
    grammar = site.get("tasks", params={"q": 'state:failed lock:"store 7"'})
    assert grammar.headers["location"] == "./tasks?state=failed&lock=store+7"
    wrong = site.get("tasks", params={"q": "state:failed colour:red"}).text
    assert "             ^ &#39;colour&#39; is no filter; there are state, role" in wrong
    wrong = site.get("tasks", params={"q": "role:crawl state:asleep", "was": "role:resync"}).text
    assert "                 ^ status=&#39;asleep&#39;: give some of" in wrong
    assert f"#{other}" in wrong, "the rows there were stay"
    assert f"#{mine}" not in wrong
    assert 'value="role:crawl state:failed"' not in site.html("tasks?state=failed&role=crawl"), "in one order"
    assert 'value="state:failed role:crawl"' in site.html("tasks?state=failed&role=crawl")
    assert "older=" in site.html("tasks?older=soon")
    assert f"#{mine}" in site.html("tasks?error=broken&newer=1h")
    assert f"#{mine}" not in site.html("tasks?error=whole")


def test_a_task_is_found_by_its_arguments_given_by_name_or_by_place(site: Site) -> None:
    named = task(site, "failed", "crawl", kwargs='{"store_id": 17}')
    placed, other = task(site, "pending", "crawl", args="[17]"), task(site, "failed", "crawl", args="[18]")
    asked = site.get("tasks", params={"q": "arg.store_id:17"})
    assert asked.headers["location"] == "./tasks?arg.store_id=17"
    found = site.html("tasks?arg.store_id=17")
    assert set(re.findall(r'id="task-(\d+)"', found)) == {str(named), str(placed)}
    assert 'value="arg.store_id:17"' in found
    assert site.html("tasks?arg.store_id=17&state=failed").count(f"#{named}<") == 1
    assert re.findall(r'id="task-(\d+)"', site.html("tasks?arg.store_id=17&arg.account_id=3")) == []
    assert "Retry 2 tasks" in site.html("tasks/matching?move=retry&role=crawl&state=failed")
    assert "Retry 1 task?" in site.html("tasks/matching?move=retry&arg.store_id=17")
    assert f"#{other}" in site.html("tasks?arg.store_id=18")


def test_a_list_goes_on_where_its_page_ended(site: Site) -> None:
    made = [task(site, "failed", "crawl") for _ in range(60)]
    first = site.html("tasks?state=failed")
    older = re.search(r'rel="next" href="\?([^"]+)"', first)
    assert older
    second = site.html(f"tasks?{html.unescape(older[1])}")
    seen = [int(n) for text in (first, second) for n in re.findall(r'id="task-(\d+)"', text)]
    assert seen == made[::-1]
    assert "Newest" in second


def test_a_list_goes_back_page_by_page(site: Site) -> None:
    made = [task(site, "failed", "crawl") for _ in range(160)][::-1]

    def go(path: str, rel: str) -> str:
        found = re.search(rf'rel="{rel}" href="\?([^"]*)"', site.html(path))
        assert found, path
        return f"tasks?{html.unescape(found[1])}"

    pages = ["tasks?state=failed"]
    for _ in range(3):
        pages.append(go(pages[-1], "next"))
    assert 'rel="next"' not in site.html(pages[-1])
    back = pages[-1]
    for n in (2, 1, 0):
        back = go(back, "prev")
        assert [int(n) for n in re.findall(r'id="task-(\d+)"', site.html(back))] == made[50 * n : 50 * n + 50]
    assert back == pages[0]
    assert "seen=" not in "".join(re.findall(r'href="[^"]*matching[^"]*"', site.html(pages[1])))
    for broken in ("x", "7", "[7]", '{"a":1}'):
        assert go(f"tasks?state=failed&before=7&seen={broken}", "prev") == "tasks?state=failed"


def test_a_list_is_exported_as_it_was_filtered(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [task(site, "failed", "crawl", account="=1+1") for _ in range(25)]
    task(site, "failed", "resync")
    link = re.search(r'href="([^"]+)">CSV<', site.html("tasks?role=crawl"))
    assert link
    assert html.unescape(link[1]) == "./tasks/export.csv?role=crawl"
    answer = site.get("tasks/export.csv?role=crawl")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="tasks.csv"'
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert [int(row["id"]) for row in rows] == made[::-1]
    assert {row["account"] for row in rows} == {"'=1+1"}
    monkeypatch.setattr(exports, "MOST_ROWS", 10)
    monkeypatch.setattr(exports, "MOST", 22)
    *told, note = map(json.loads, site.get("tasks/export.ndjson?role=crawl").text.splitlines())
    assert [one["id"] for one in told] == made[:2:-1]
    assert "the newest 22; there are more" in note["note"]
    assert site.get("tasks/export.xls").status_code == 404
    assert site.get("tasks/export.csv?newer=soon").status_code == 422


def test_an_export_that_ends_before_its_end_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        task(site, "failed", "crawl")
    monkeypatch.setattr(exports, "MOST_ROWS", 2)
    looked: list[int] = []
    real = lists.list_tasks

    def away(connection: Connection, wanted: lists.Filter, **more: Any) -> lists.Page:
        looked.append(1)
        if len(looked) > 2:
            raise DBAPIError("SELECT 1", None, OperationalError("gone"))
        return real(connection, wanted, **more)

    monkeypatch.setattr(insights, "list_tasks", away)
    lines = [json.loads(line) for line in site.get("tasks/export.ndjson?role=crawl").text.splitlines()]
    assert (len(lines), "this is not all" in lines[-1]["note"]) == (5, True)


@pytest.mark.parametrize(
    ("given", "to"),
    [
        ("crawl", "roles/crawl"),
        ("node", "workers/node"),
        ("store:7", "locks/store:7"),
        ("a1", "accounts/a1"),
    ],
)
def test_the_box_goes_to_what_one_names(site: Site, given: str, to: str) -> None:
    worker(site, "node")
    task(site, "running", "crawl", lock_key="store:7", account="a1")
    assert site.get("go", params={"q": given}).headers["location"] == f"./{to}"


@pytest.mark.parametrize("given", ["store:8", "a:2", "a2", "99999999", "50%", "<b>"])
def test_the_box_says_that_nothing_is_called_so(site: Site, given: str) -> None:
    answer = site.get("go", params={"q": given})
    assert (answer.status_code, "Nothing here is called" in answer.text) == (200, True)


def test_the_box_goes_to_a_lock_without_a_colon_and_an_account_with_one_and_tells_both(site: Site) -> None:
    task(site, "running", "crawl", lock_key="seven", account="a:1")
    task(site, "running", "crawl", lock_key="both", account="both")
    assert site.get("go?q=seven").headers["location"] == "./locks/seven"
    assert site.get("go?q=a:1").headers["location"] == "./accounts/a:1"
    said = site.html("go?q=both")
    assert 'href="./locks/both">lock both' in said
    assert 'href="./accounts/both">account both' in said


def test_a_task_is_found_by_its_id_and_by_its_task_id(site: Site) -> None:
    made = task(site, task_id="abc")
    assert site.get("tasks/abc").headers["location"] == f"../tasks/{made}"
    assert site.get("go?q=abc").headers["location"] == f"./tasks/{made}"
    gone = site.get("tasks/88123")
    assert (gone.status_code, "There is no task" in gone.text) == (404, True)


def test_an_address_that_no_page_wrote_is_a_page_all_the_same(site: Site) -> None:
    for seen in ("[" * 7_000, '{"a": 1}', "1" * 5_000, '[["a"]]', "\ud800"):
        answer = site.get("tasks", params={"seen": seen.encode(errors="surrogatepass"), "after": "1"})
        assert answer.status_code < 500, seen[:20]
