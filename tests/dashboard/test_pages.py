"""Every page: with data, with none, and while what it reads does not answer in time."""

from __future__ import annotations

import ast
import csv
import html
import json
import re
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from psycopg2 import OperationalError
from psycopg2.extensions import QueryCanceledError
from sqlalchemy import Connection
from sqlalchemy.exc import DataError, DBAPIError

from celeriac import insights
from celeriac.dashboard import errors, failures, locks, overview, reading
from celeriac.dashboard.page import Page
from celeriac.dashboard.templates import ALSO, NAV
from celeriac.insights import exports, lists
from celeriac.store.connections import Database
from tests.api.works import task
from tests.dashboard.site import EVIL, Site, worker
from tests.postgres.finished import live_worker
from tests.processes import ROOT, until

#: Each page, what it says where there is nothing, and the tables whose lock stops all it reads.
PAGES = {
    "overview": ("nobody has looked at what is watched yet", ("alerts", "tasks", "workers")),
    "tasks": ("There is no task yet", ("tasks",)),
    "roles": ("idle", ("roles",)),
    "accounts": ("nobody has set a weight", ("account_policies",)),
    "locks": ("No lock is held", ("behind", "tasks")),
    "workers": ("No worker has reported within 30 d", ("workers",)),
    "schedules": ("Nothing is scheduled", ("scheduled_jobs", "beats", "ticks")),
    "failures": ("Nothing failed in this time: until", ("history",)),
    "bulk": ("No bulk action yet", ("bulk_actions",)),
    "decisions": ("No pass yet", ("passes",)),
    "capacity": ("resync", ("roles",)),
    "workflows": ("No workflow is under way", ("tasks",)),
    "dead-letters": ("There is none", ("dead_letters",)),
    "system": ("No sweep is known", ("scheduled_jobs", "beats")),
    "alerts": ("No alert is open", ("alerts", "alert_silences")),
    "audit": ("Nobody has acted", ("audit",)),
}

#: Pages of one thing.
ONE = (
    "tasks/{pending}", "tasks/{running}", "tasks/{failed}", "tasks?state=failed", "roles/crawl", "workers/{evil}",
    "accounts/{evil}", "locks/lock:running:{evil}", "locks/free", "locks?tab=unique",
    "schedules/nightly%20{evil}", "decisions/1?role=crawl", "dead-letters/1",
    "workflows/{evil}",
    "audit?kind=task&target={evil}", "capacity?role=crawl&workers=2&hours=4",
    "tasks/matching?move=retry&state=failed", "bulk/1",
)  # fmt: skip


#: Pages of admins alone.
FORMS = ("new-task?role=crawl", "new-schedule", "edit-schedule/nightly%20{evil}")


def headings(text: str) -> list[str]:
    return re.findall(r"<h1[ >]", text)


def filled(path: str, ids: dict[str, int]) -> str:
    return path.format(evil=quote(EVIL, safe=""), **ids)


def test_each_page_of_the_navigation_is_tried() -> None:
    assert [path for path, _, _ in NAV] == list(PAGES)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_without_data_says_so(site: Site, path: str) -> None:
    text = site.html(path)
    assert PAGES[path][0] in text
    assert len(headings(text)) == 1
    assert re.search(r"<title>[^<]+ · Celeriac</title>", text)


def test_pages_with_data_show_what_others_wrote_as_text(site: Site, furnished: dict[str, int]) -> None:
    for path in (*PAGES, *(filled(path, furnished) for path in (*ONE, *FORMS))):
        text = site.html(path)
        assert "<img" not in text, path
        assert len(headings(text)) == 1, path
        assert not re.search(r' (?:style|on\w+)="', text), path
        if path.partition("?")[0] not in (
            "capacity",
            "tasks/matching",
            "overview",
            "locks/free",
            "new-schedule",
            "new-task",
        ):
            assert html.escape(EVIL).replace("&quot;", "&#34;") in text, path


def test_a_page_as_json_is_its_insights(site: Site, furnished: dict[str, int]) -> None:
    for path in (*PAGES, *(filled(path, furnished) for path in ONE)):
        head, mark, query = path.partition("?")
        answer = site.get(f"{head}.json{mark}{query}")
        assert answer.status_code == 200, f"{path} {answer.text[:500]}"
        assert isinstance(answer.json(), dict), path
    tasks = site.get("tasks.json?state=failed").json()["tasks"]["items"]
    assert [row["id"] for row in tasks] == [furnished["failed"]]
    assert site.get("tasks", headers={"Accept": "application/json"}).json()["counts"]["failed"] == {
        "n": 1, "exact": True
    }  # fmt: skip


@pytest.mark.parametrize("path", [path for path, (_, tables) in PAGES.items() if tables])
def test_an_insight_that_takes_too_long_leaves_its_place_to_a_sentence(
    site: Site, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.html(path)
    monkeypatch.setattr(reading, "TIMEOUT", 0.05)
    with site.locked(*PAGES[path][1]):
        text = site.html(path)
    assert "was stopped. Narrow it by role or time." in text
    assert "All is well" not in text
    assert len(headings(text)) == 1


def test_without_postgres_a_new_page_says_so_and_no_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    away = Database("postgresql://nobody@127.0.0.1:9/none")
    monkeypatch.setitem(site.app.__dict__, "database", away)
    answer = site.get("tasks")
    away.dispose()
    assert (answer.status_code, "Postgres does not answer" in answer.text) == (503, True)
    assert "127.0.0.1:9" not in answer.text


def test_the_one_insight_of_a_page_that_takes_too_long_is_said_to(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "TIMEOUT", 0.05)
    failed = task(site, "failed", "crawl")
    with site.locked("history"):
        answer = site.get(f"tasks/{failed}")
    assert (answer.status_code, "was stopped" in answer.text) == (503, True)
    assert answer.headers["retry-after"] == "5"


def is_told_once(site: Site, path: str) -> bool:
    """Ages are of whole seconds: two looks may fall on both sides of one."""
    tag = site.get(path, headers={"Live": "1"}).headers["etag"]
    again = site.get(path, headers={"Live": "1", "If-None-Match": tag})
    return (again.status_code, again.content) == (304, b"")


def test_what_has_not_changed_is_not_sent_again(site: Site, furnished: dict[str, int]) -> None:
    for path in (*PAGES, *(filled(path, furnished) for path in ONE)):
        until(lambda: is_told_once(site, path), f"{path} to stay as it is", 10)  # noqa: B023


def test_all_who_look_at_once_cost_one_query(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SERVES", 1e9)
    before = site.html("tasks")
    made = task(site, "pending", "crawl")
    assert site.html("tasks") == before
    site.told(f"tasks/{made}/priority", priority=3)
    assert f"#{made}" in site.html("tasks")


def test_fifty_who_look_at_the_same_second_cost_one_query(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SERVES", 1e9)
    asked: list[int] = []
    real = insights.list_tasks

    def counted(*given: Any, **named: Any) -> insights.Page:
        asked.append(1)
        return real(*given, **named)

    monkeypatch.setattr(insights, "list_tasks", counted)
    headers = {"Cookie": f"celeriac={site.tokens['read']}", "Live": "1"}
    with ThreadPoolExecutor(50) as viewers:
        answers = list(viewers.map(lambda _: httpx.get(f"{site.url}/tasks", headers=headers, timeout=30), range(50)))
    assert {answer.status_code for answer in answers} == {200}
    assert len(asked) == 1


def test_fifty_who_look_at_the_same_second_cost_one_rendering(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those who may the same; the saved views of each are no part of what is live."""
    monkeypatch.setattr(reading, "SERVES", 1e9)
    task(site, "pending", "crawl")
    rendered: list[str] = []
    real = Page.render

    def counted(page: Page, template: str, **given: Any) -> str:
        rendered.append(page.bearer.name)
        return real(page, template, **given)

    monkeypatch.setattr(Page, "render", counted)

    def look(token: str, **headers: str) -> httpx.Response:
        given = {"Cookie": f"celeriac={token}", "Live": "1"} | headers
        return httpx.get(f"{site.url}/tasks", headers=given, timeout=30)

    first = look(site.tokens["read"])
    again = [look(site.tokens["read"]) for _ in range(10)]
    assert {answer.text for answer in again} == {first.text}
    assert look(site.tokens["read"], **{"If-None-Match": first.headers["etag"]}).status_code == 304
    assert len(rendered) == 1
    assert "Retry ticked tasks" not in first.text
    assert "Retry ticked tasks" in look(site.tokens["admin"]).text
    other_zone = f"celeriac={site.tokens['read']}; celeriac-zone=Asia%2FTokyo"
    assert look("", Cookie=other_zone).text != first.text
    site.reading.forget()
    look(site.tokens["read"])
    assert len(rendered) == 4, "new figures, a new rendering"


@pytest.mark.parametrize("path", ["overview", "roles", "roles/crawl"])
def test_what_a_page_makes_of_figures_is_rendered_once(site: Site, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(reading, "SERVES", 1e9)
    task(site, "pending", "crawl")
    rendered: list[str] = []
    real = Page.render

    def counted(page: Page, template: str, **given: Any) -> str:
        rendered.append(template)
        return real(page, template, **given)

    monkeypatch.setattr(Page, "render", counted)
    looks = {site.get(path, headers={"Live": "1"}).text for _ in range(5)}
    assert (len(looks), len(rendered)) == (1, 1)
    task(site, "pending", "crawl")
    site.reading.forget()
    site.get(path, headers={"Live": "1"})
    assert len(rendered) == 2


def test_what_is_stopped_is_waited_for_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever looks would wait for all who looked before."""
    monkeypatch.setattr(reading, "SERVES", 1e9)
    monkeypatch.setattr(reading, "TIMEOUT", 0.05)
    with site.locked("tasks"):
        assert "was stopped" in site.html("tasks")
    assert "was stopped" in site.html("tasks")


def test_states_have_the_names_of_other_systems_too(site: Site) -> None:
    running = task(site, "running", "crawl")
    found = site.html("tasks?state=crawling")
    assert f"#{running}" in found
    assert 'title="crawling, active"' in found


def test_times_are_told_in_one_zone_that_is_named(site: Site) -> None:
    made = task(site, "pending", "crawl")
    site.rows("UPDATE celeriac.tasks SET created_at = '2026-07-01 10:00Z'")
    headers = {"Cookie": f"celeriac={site.tokens['read']}; celeriac-zone=Europe%2FBerlin"}
    said = site.get(f"tasks/{made}", None, headers=headers).text
    assert "01 Jul 2026 12:00:00" in said
    assert "</time> Europe/Berlin" in said
    assert "01 Jul 2026 10:00:00" in site.html(f"tasks/{made}")


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


def test_numbers_are_exact(site: Site, furnished: dict[str, int]) -> None:
    assert "9007199254740993" in site.html(f"tasks/{furnished['failed']}")


def test_files_are_kept_for_ever_and_named_by_what_is_in_them(site: Site) -> None:
    found = re.findall(r'(static/[\w.]+)"', site.html("tasks"))
    assert len(found) == 2
    for path in found:
        answer = site.get(path, None)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    assert site.get("static/live.js", None).status_code == 404


def test_a_page_is_light(site: Site) -> None:
    for n in range(50):
        task(site, "failed", "crawl", lock_key=f"store:{n}")
    answer = site.get("tasks", headers={"Accept-Encoding": "gzip"})
    assert int(answer.headers["content-length"]) < 15_000


def test_the_task_queue_summary(site: Site) -> None:
    for status, n in (("pending", 3), ("running", 2), ("completed", 4), ("failed", 1)):
        for _ in range(n):
            task(site, status, "crawl")
    summary = site.html("").partition("Task Queue Summary")[2].partition("</dl>")[0]
    said = re.findall(r"<dt>(\w+)</dt><dd id=\"n-\w+\"><a[^>]*>([^<]+)<", summary)
    assert said == [("Pending", "3"), ("Running", "2"), ("Completed", "4"), ("Failed", "1")]


def test_what_is_not_counted_to_its_end_is_said_to_be_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        task(site, "pending", "crawl")
    site.rows("INSERT INTO celeriac.batchers (role, cursor, seconds_per_task) VALUES ('crawl', '', 3600)")
    live_worker(site.rows, queues='["crawl"]')
    row = site.html("roles").partition('id="role-crawl"')[2].partition("</tr>")[0]
    assert ">5 h<" in row
    monkeypatch.setattr(overview, "COUNTED", 3)
    site.reading.forget()
    row = site.html("roles").partition('id="role-crawl"')[2].partition("</tr>")[0]
    assert ">over 3 h<" in row


def test_workers_needed(site: Site) -> None:
    """As the API says it, of the same view."""
    for _ in range(5):
        task(site, "pending", "crawl")
    site.rows("""INSERT INTO celeriac.batchers (role, cursor, seconds_per_task) VALUES ('crawl', '', 3600)""")
    (row,) = [row for row in site.get("capacity.json").json()["capacity"] if row["role"] == "crawl"]
    assert (row["pending_tasks"], row["workers_needed"]["for_1_hour"]) == (5, 5)
    assert (
        row
        == httpx.get(
            f"http://{site.host}/api/tasks/capacity/crawl", headers={"Authorization": f"Bearer {site.tokens['read']}"}
        ).json()
    )
    assert "to be done in 5.0 h it takes 1 worker" in site.html("capacity?role=crawl&hours=5")


def test_how_what_waits_is_worked_off_is_drawn_by_the_rates(site: Site) -> None:
    for _ in range(5):
        task(site, "pending", "crawl")
    site.rows("INSERT INTO celeriac.batchers (role, cursor, seconds_per_task) VALUES ('crawl', '', 3600)")
    site.rows("UPDATE celeriac.minutes_until SET until = date_trunc('minute', now())")
    site.rows("""INSERT INTO celeriac.minutes (role, minute, enqueued, completed, failed, waits, runs)
        SELECT 'crawl', until - i * interval '1 minute', 1, 0, 0, '{}', '{}'
        FROM celeriac.minutes_until, generate_series(1, 2) i""")
    text = site.html("capacity?role=crawl&workers=4&hours=5")
    assert "2 came within the last hour, 4 are done in an hour by 4 workers" in text
    assert "Nothing waits after 2 h 30 m. To be done in 5.0 h it takes 3 workers." in text
    assert '<path class="enqueued" d="M46.0 8.0L' in text
    assert "What waits grows by 1 an hour" in site.html("capacity?role=crawl&workers=1")


def test_memory_says_how_many_tasks_a_pod_has_room_for(site: Site) -> None:
    text = site.html("capacity?task_mb=2000&pod_mb=8250")
    assert "A pod of 8\u202f250 MB may run 3 tasks of 2\u202f000 MB at once" in text
    assert "8\u202f250 MB in all" in text
    assert "not even one fits" not in text
    assert "not even one fits" in site.html("capacity?task_mb=2000&pod_mb=4000")
    assert "give a number above 0" in site.get("capacity?task_mb=-1&pod_mb=5").text


def test_what_a_page_says_of_other_surfaces_is_there(site: Site) -> None:
    told = [one for pair in ALSO.values() for one in pair if one is not None]
    documented = httpx.get(
        f"http://{site.host}/openapi.json", headers={"Authorization": f"Bearer {site.tokens['read']}"}
    ).json()["paths"]
    commands = (ROOT / "docs" / "command-line.md").read_text() + (ROOT / "docs" / "adopting.md").read_text()
    for one in told:
        assert one in documented if one.startswith("/") else one in commands, one


def test_a_problem_is_marked_known_with_a_note_resolved_and_opens_by_itself(site: Site) -> None:
    task(site, "failed", "crawl")
    (group,) = site.get("failures.json").json()["failures"]["groups"]
    address = f"failures/{group['fingerprint']}"
    assert "✕ open" in site.html(address)
    assert site.told(f"{address}/mark", state="known", note="until <b>Monday</b>") == "It is marked as known."
    page = site.html(address)
    assert "◔ known" in page
    assert "“until &lt;b&gt;Monday&lt;/b&gt;”" in page
    assert "◔ known" in site.html("failures")
    assert "◔ known" not in site.html("failures?state=open")
    assert "No problem is open in this time" in site.html("failures?state=open")
    assert site.told(f"{address}/mark", state="resolved") == "It is marked as resolved."
    assert "✓ resolved" in site.html(address)
    task(site, "failed", "crawl")
    assert "✕ open again" in site.html(address)
    assert "give one of open, known, resolved" in site.told(f"{address}/mark", state="gone")
    assert site.get("failures?state=gone").status_code == 422
    marks = site.rows("SELECT before ->> 'state', after ->> 'state' FROM celeriac.audit ORDER BY id")
    assert marks == [("open", "known"), ("known", "resolved")]
    assert f'{group["fingerprint"]}/mark"' in site.html(address, "operate")
    assert f'{group["fingerprint"]}/mark"' not in site.html(address, "read")


def test_failures_are_told_by_their_problem(site: Site) -> None:
    failed = [task(site, "failed", "crawl") for _ in range(3)]
    site.rows("UPDATE celeriac.history SET error_message = 'HTTPError: 502 of store ' || id")
    group = site.get("failures.json").json()["failures"]["groups"][0]
    assert (group["count"], group["pattern"]) == (3, "HTTPError: # of store #")
    assert f"#{failed[-1]}" in site.html(f"failures/{group['fingerprint']}")
    asked = site.html(f"retry-failures/{group['fingerprint']}")
    assert "Retry 3 tasks" in asked
    assert site.get("failures/none").status_code == 404


def test_all_tasks_of_a_failure_are_listed_page_by_page(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [task(site, "failed", "crawl") for _ in range(3)]
    other = task(site, "failed", "resync")
    monkeypatch.setattr(failures, "ROWS", 2)
    found = {one["role"]: one["fingerprint"] for one in site.get("failures.json").json()["failures"]["groups"]}
    text = site.html(f"failures/{found['crawl']}")
    assert f'href="../failures/{found["crawl"]}/tasks?role=crawl">All of them' in text
    text = site.html(f"failures/{found['crawl']}/tasks")
    assert [f'id="task-{n}"' in text for n in (*made, other)] == [False, True, True, False]
    (older,) = re.findall(r'rel="next" href="([^"]+)"', text)
    text = site.html(f"failures/{found['crawl']}/tasks{html.unescape(older)}")
    assert [f'id="task-{n}"' in text for n in (*made, other)] == [True, False, False, False]
    assert site.get("failures/none/tasks").status_code == 404


def test_a_lock_says_who_has_it_and_who_stands_behind(site: Site) -> None:
    running = task(site, "running", "crawl", lock_key="store:7")
    behind = [task(site, "pending", "crawl", lock_key="store:7") for _ in range(2)]
    said = site.html("locks/store:7")
    assert f"#{running}</a> of crawl has it" in said
    assert [int(n) for n in re.findall(r'id="behind-(\d+)"', said)] == behind
    assert 'id="lock-store:7"' in site.html("locks")


def test_unique_keys_are_listed_with_the_task_that_has_each(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No unfinished task has a unique key" in site.html("locks?tab=unique")
    monkeypatch.setattr(locks, "ROWS", 2)
    made = [task(site, "pending", "crawl", unique_key=f"store:{n}") for n in range(3)]
    running = task(site, "running", "resync", unique_key="store:9")
    text = site.html("locks?tab=unique")
    assert [f'id="unique-{n}"' in text for n in (*made, running)] == [True, True, False, False]
    following = html.unescape(re.findall(r'rel="next" href="([^"]+)"', text)[0])
    text = site.html(f"locks{following}")
    assert [f'id="unique-{n}"' in text for n in (*made, running)] == [False, False, True, True]
    assert "▶</span> running" in text
    assert [one["unique_key"] for one in site.get("locks.json?tab=unique&role=resync").json()["keys"]] == ["store:9"]
    assert "No unfinished task of other" in site.html("locks?tab=unique&role=other")
    assert f'id="unique-{made[0]}"' in site.html("locks?tab=unique&after=nonsense")


def test_a_role_says_who_gets_how_much(site: Site) -> None:
    for account, n in (("a", 3), ("b", 1)):
        for _ in range(n):
            task(site, "pending", "crawl", account=account)
    for path, row in (("roles/crawl", "share-a"), ("accounts", "account-a")):
        said = site.html(path)
        assert f'id="{row}"' in said
        assert "a lacks most: it holds 0, 3.0 would be fair" in said
    site.rows("INSERT INTO celeriac.batchers (role, cursor) VALUES ('crawl', 'a')")
    site.rows("""INSERT INTO celeriac.passes (role, by, free, claimants, given)
        VALUES ('crawl', 'w', 1, '[{"account": "a", "waiting": 3}, {"account": "b", "waiting": 1}]', '{"a": 1}')""")
    said = site.html("roles/crawl")
    assert "The next pass begins after a." in said
    waited = {account: re.findall(rf'<tr id="share-{account}">.*?</tr>', said, re.DOTALL)[0] for account in "ab"}
    assert ['<td class="figure">1</td><td><time' in waited[account] for account in "ba"] == [True, False]


def test_a_role_says_why_its_tasks_wait_and_when_the_next_pass_takes_some(site: Site) -> None:
    task(site, "pending", "resync")
    task(site, "pending", "resync", lock_key="k", waits_for="lock")
    assert "no worker listens on the queue" in site.html("roles/resync")
    live_worker(site.rows, queues='["resync"]')
    text = site.html("roles/resync")
    assert "next in line: a pass, at <time" in text
    assert 'href="../tasks?state=pending&amp;role=resync&amp;waits=lock">1</a></dt><dd>behind a lock' in text
    site.rows("UPDATE celeriac.roles SET paused = true WHERE role = 'resync'")
    assert 'waits=nothing">1</a></dt><dd>its role is paused</dd>' in site.html("roles/resync")


def test_a_waiting_task_says_why_and_what_was_not_asked_yet(site: Site) -> None:
    waiting = task(site, "pending", "crawl", account="anna")
    site.told("pause-account/anna", why="unpaid")
    said = site.html(f"tasks/{waiting}")
    assert "Its account is paused" in said.partition('<p class="lede">')[2].partition("</p>")[0]
    checks = dict(re.findall(r'<li id="check-(\w+)" class="([\w-]+)"', said))
    assert (checks["due"], checks["role"], checks["account"], checks["lock"]) == ("yes", "yes", "no", "not-asked")
    same = httpx.get(
        f"http://{site.host}/api/tasks/{waiting}/why", headers={"Authorization": f"Bearer {site.tokens['read']}"}
    ).json()
    assert same["headline"] == site.get(f"tasks/{waiting}.json").json()["why"]["headline"]


def test_a_schedule_says_when_it_fires_next_on_its_own_clocks(site: Site) -> None:
    site.rows("""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, timezone)
        VALUES ('nightly', 'crawl', '30 3 * * *', 'Asia/Kolkata')""")
    following = [datetime.fromisoformat(at) for at in site.get("schedules/nightly.json").json()["following"]]
    assert len(following) == 5
    assert {at.strftime("%H:%M %z") for at in following} == {"03:30 +0530"}
    assert {after - before for before, after in pairwise(following)} == {timedelta(days=1)}
    for path in ("schedules/nightly", "schedules"):
        assert "at 03:30 every day" in site.html(path)
    assert site.html("schedules/nightly").count(" 03:30:00<") == 5


def test_a_role_says_since_when_it_is_idle_and_what_another_release_declares(site: Site) -> None:
    site.rows("""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, next_run_at)
        VALUES ('nightly', 'resync', '@daily', now() + interval '3 hours')""")
    task(site, "completed", "resync")
    site.rows("""UPDATE celeriac.roles SET otherwise = jsonb_build_object('release', 6, 'at', now(),
        'definition', definition || '{"window": 77}') WHERE role = 'resync'""")
    said = site.html("roles/resync")
    idle = said.partition('<p id="idle">')[2].partition("</p>")[0]
    assert "Idle since" in idle
    assert re.search(r'schedules/nightly">nightly</a> makes its next task at', idle)
    row = said.partition('<tr id="option-window">')[2].partition("</tr>")[0]
    assert "<b>77</b>" in row
    assert "The code of release 6 declared it otherwise" in said
    assert "none that was retried has ended" in said


def test_a_fleet_that_is_gone_is_an_error_and_no_empty_list(site: Site) -> None:
    worker(site, "a", ago=300)
    worker(site, "b", ago=3_600)
    assert "✕ All workers are gone since" in site.html("workers")
    worker(site, "c", version="0.1.0")
    said = site.html("workers")
    assert "All workers are gone" not in said
    assert "pid 12, 0.1.0</span>" in said


def test_head_is_a_page_without_its_body(site: Site) -> None:
    asked, whole = site.ask("HEAD", "tasks"), site.get("tasks", "admin")
    assert (asked.status_code, asked.content) == (200, b"")
    assert asked.headers["content-type"] == whole.headers["content-type"]
    with site.locked("tasks", "history"):
        export = site.ask("HEAD", "tasks/export.csv")
    assert (export.status_code, export.headers["content-type"]) == (200, "text/csv; charset=utf-8")
    assert export.headers["content-disposition"] == 'attachment; filename="tasks.csv"'
    refused = site.ask("DELETE", "tasks", headers={"Sec-Fetch-Site": "same-origin"})
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize(
    "path",
    [
        "tasks?role=%00", "tasks/%00", "accounts/a%00b", "audit?target=%00", "tasks?newer=" + "9" * 400 + "d",
        "tasks?older=" + "9" * 15 + "d", "tasks?before=" + "9" * 5000, "decisions?role=crawl&before=" + "9" * 5000,
        "capacity?workers=1e999", "capacity?hours=nan", "dead-letters?before=" + "9" * 30,
        "failures?newer=" + "9" * 400, "audit?before=" + "9" * 30, "workflows?of=" + "9" * 30, "accounts?after=%00",
    ],
)  # fmt: skip
def test_what_is_nonsense_is_no_failure(site: Site, path: str) -> None:
    answer = site.get(path)
    assert answer.status_code < 500, answer.text


@pytest.mark.parametrize("task", ["9" * 30, "9" * 5000])
def test_a_task_of_very_many_digits_is_none(site: Site, task: str) -> None:
    assert site.get(f"tasks/{task}").status_code == 404


def test_what_failed_is_kept_without_its_frames_and_no_longer_than_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SERVES", 60.0)
    now = count(10, 10)
    monkeypatch.setattr(reading, "time", SimpleNamespace(monotonic=lambda: next(now)))
    for kind, again in ((OperationalError, 1), (QueryCanceledError, 0)):
        asked: list[Exception] = []
        kept = reading.Kept()

        def read(kind: type[Exception] = kind, asked: list[Exception] = asked) -> None:
            asked.append(DBAPIError("SELECT 1", None, kind("no")))
            raise asked[-1]

        raised = []
        for _ in range(9):
            with pytest.raises(DBAPIError) as info:
                kept.get(read)
            raised.append(info.value)
        assert len(asked) == 1 + again
        assert len({id(error) for error in raised}) == 9
        assert {len(list(traceback.walk_tb(error.__traceback__))) for error in raised} == {2}


def test_what_postgres_does_not_take_is_a_slip_of_who_gave_it() -> None:
    status, said = errors.told(DataError("SELECT 1", None, ValueError("out of range")))
    assert (status, "nothing that Postgres takes" in said) == (422, True)


def test_what_the_page_of_the_docs_says_is_tried_in_a_browser_is() -> None:
    table = (
        (ROOT / "docs" / "dashboard.md").read_text().partition("## What is tried")[2].partition("## The elements")[0]
    )
    named = re.findall(r"`(test_\w+)`", table)
    there = "".join(path.read_text() for path in (ROOT / "tests" / "dashboard").glob("test_browser*.py"))
    assert len(named) > 20
    assert [name for name in named if f"def {name}(" not in there] == []


def test_each_element_of_the_page_of_the_docs_has_a_test_in_a_browser() -> None:
    table = (ROOT / "docs" / "dashboard.md").read_text().partition("## The elements")[2]
    lines = [line for line in table.splitlines() if line.startswith("| ") and "---" not in line][1:]
    named = [re.search(r"`(test_\w+)` \|$", line) for line in lines]
    there = ast.parse((ROOT / "tests" / "dashboard" / "test_browser.py").read_text()).body
    tests = {node.name for node in there if isinstance(node, ast.FunctionDef)}
    assert len(lines) > 10
    assert [line for line, name in zip(lines, named, strict=True) if name is None or name[1] not in tests] == []
