"""Every page: with data, with none, and while what it reads does not answer in time."""

from __future__ import annotations

import ast
import html
import re

import httpx
import pytest
from sqlalchemy.exc import DataError

from celeriac.dashboard import errors, reading
from celeriac.dashboard.also import LISTS
from celeriac.dashboard.templates import TABS
from celeriac.store.connections import Database
from tests.api.works import task
from tests.dashboard.pages import FORMS, ONE, PAGES, filled
from tests.dashboard.site import EVIL, Site
from tests.processes import ROOT


def headings(text: str) -> list[str]:
    return re.findall(r"<h1[ >]", text)


def test_each_page_of_the_navigation_is_tried() -> None:
    assert [path for pages in TABS.values() for path, _, _ in pages] == list(PAGES)


@pytest.fixture(scope="module")
def texts(furnished_of_module: Site) -> dict[str, str]:
    """Each page with data, as an admin sees it, read once for all tests."""
    site = furnished_of_module
    site.show()
    return {path: site.html(path) for path in (*PAGES, *(filled(path, site.ids) for path in (*ONE, *FORMS)))}


def test_each_page_is_under_one_of_five_tabs(texts: dict[str, str]) -> None:
    assert list(TABS) == ["Now", "Tasks", "Who", "Fleet", "Record"]
    for path, text in texts.items():
        header = text.partition("<header>")[2].partition("</header>")[0]
        tabs, _, within = header.partition('<nav class="within"')
        assert tabs.count("aria-current") == 1, path
        assert ('aria-current="page"' in within) is (path != "overview"), path


def test_the_former_address_of_unique_keys_leads_to_them(still: Site) -> None:
    for suffix in ("", ".json"):
        answer = still.get(f"locks{suffix}?tab=unique&role=crawl")
        assert (answer.status_code, answer.headers["location"]) == (303, f"./unique-keys{suffix}?role=crawl")


@pytest.mark.parametrize("path", PAGES)
def test_a_page_without_data_says_so(still: Site, path: str) -> None:
    text = still.html(path)
    assert PAGES[path][0] in text
    assert len(headings(text)) == 1
    assert re.search(r"<title>[^<]+ · Celeriac</title>", text)


def test_pages_with_data_show_what_others_wrote_as_text(texts: dict[str, str]) -> None:
    for path, text in texts.items():
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


def test_a_page_as_json_is_its_insights(full: Site) -> None:
    for path in (*PAGES, *(filled(path, full.ids) for path in ONE)):
        head, mark, query = path.partition("?")
        answer = full.get(f"{head}.json{mark}{query}")
        assert answer.status_code == 200, f"{path} {answer.text[:500]}"
        assert isinstance(answer.json(), dict), path
    tasks = full.get("tasks.json?state=failed").json()["tasks"]["items"]
    assert [row["id"] for row in tasks] == [full.ids["failed"]]
    assert full.get("tasks", headers={"Accept": "application/json"}).json()["counts"]["failed"] == {
        "n": 1, "exact": True
    }  # fmt: skip


@pytest.mark.parametrize("path", [path for path, (_, tables) in PAGES.items() if tables])
def test_an_insight_that_takes_too_long_leaves_its_place_to_a_sentence(
    still: Site, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    still.html(path)
    monkeypatch.setattr(reading, "TIMEOUT", 0.05)
    with still.locked(*PAGES[path][1]):
        text = still.html(path)
    assert "was stopped. Narrow it by role or time." in text
    assert "All is well" not in text
    assert len(headings(text)) == 1


def test_without_postgres_a_new_page_says_so_and_no_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.session("read")
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


def test_times_are_told_in_one_zone_that_is_named(site: Site) -> None:
    made = task(site, "pending", "crawl")
    site.rows("UPDATE celeriac.tasks SET created_at = '2026-07-01 10:00Z'")
    headers = {"Cookie": f"celeriac={site.session('read')}; celeriac-zone=Europe%2FBerlin"}
    said = site.get(f"tasks/{made}", None, headers=headers).text
    assert "01 Jul 2026 12:00:00" in said
    assert "</time> Europe/Berlin" in said
    assert "01 Jul 2026 10:00:00" in site.html(f"tasks/{made}")


def test_files_are_kept_for_ever_and_named_by_what_is_in_them(still: Site) -> None:
    site = still
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


def test_what_a_page_says_of_other_surfaces_is_there(still: Site) -> None:
    site = still
    told = [one for _, *ways in LISTS.values() for one in ways]
    documented = httpx.get(
        f"http://{site.host}/openapi.json", headers={"Authorization": f"Bearer {site.tokens['read']}"}
    ).json()["paths"]
    commands = (ROOT / "docs" / "command-line.md").read_text() + (ROOT / "docs" / "adopting.md").read_text()
    for one in told:
        assert one in documented if one.startswith("/") else one in commands, one


def test_head_is_a_page_without_its_body(still: Site) -> None:
    site = still
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
def test_what_is_nonsense_is_no_failure(still: Site, path: str) -> None:
    answer = still.get(path)
    assert answer.status_code < 500, answer.text


@pytest.mark.parametrize("task", ["9" * 30, "9" * 5000])
def test_a_task_of_very_many_digits_is_none(still: Site, task: str) -> None:
    assert still.get(f"tasks/{task}").status_code == 404


def test_what_postgres_does_not_take_is_a_slip_of_who_gave_it() -> None:
    status, said = errors.refusal(DataError("SELECT 1", None, ValueError("out of range")))
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
    files = (ROOT / "tests" / "dashboard").glob("test_browser*.py")
    there = [node for path in files for node in ast.parse(path.read_text()).body]
    tests = {node.name for node in there if isinstance(node, ast.FunctionDef)}
    assert len(lines) > 10
    assert [line for line, name in zip(lines, named, strict=True) if name is None or name[1] not in tests] == []
