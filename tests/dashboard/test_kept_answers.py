"""What was read or rendered is kept for a moment: many who look at once cost one query."""

from __future__ import annotations

import traceback
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from psycopg2 import OperationalError
from psycopg2.extensions import QueryCanceledError
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from celeriac import insights
from celeriac.dashboard import reading
from celeriac.dashboard.page import Page
from tests.api.works import task
from tests.dashboard.pages import ONE, PAGES, filled
from tests.dashboard.site import Site
from tests.processes import until


def is_told_once(site: Site, path: str) -> bool:
    """Ages are of whole seconds: two looks may fall on both sides of one."""
    tag = site.get(path, headers={"Live": "1"}).headers["etag"]
    again = site.get(path, headers={"Live": "1", "If-None-Match": tag})
    return (again.status_code, again.content) == (304, b"")


def test_what_has_not_changed_is_not_sent_again(full: Site) -> None:
    for path in (*PAGES, *(filled(path, full.ids) for path in ONE)):
        until(lambda: is_told_once(full, path), f"{path} to stay as it is", 10)  # noqa: B023


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
    headers = {"Cookie": f"celeriac={site.session('read')}", "Live": "1"}
    with ThreadPoolExecutor(50) as viewers:
        answers = list(viewers.map(lambda _: site.http.get("tasks", headers=headers), range(50)))
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
        return site.http.get("tasks", headers=given)

    first = look(site.session("read"))
    again = [look(site.session("read")) for _ in range(10)]
    assert {answer.text for answer in again} == {first.text}
    assert look(site.session("read"), **{"If-None-Match": first.headers["etag"]}).status_code == 304
    assert len(rendered) == 1
    assert "Retry ticked tasks" not in first.text
    assert "Retry ticked tasks" in look(site.session("admin")).text
    other_zone = f"celeriac={site.session('read')}; celeriac-zone=Asia%2FTokyo"
    assert look("", Cookie=other_zone).text != first.text
    site.reading.forget()
    look(site.session("read"))
    assert len(rendered) == 4, "new figures, a new rendering"


def test_who_looks_again_in_the_same_moment_is_answered_before_the_handler(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed once for all; a change is seen at once, and a token that may less, or no more, gets nothing of it."""
    monkeypatch.setattr(reading, "SERVES", 1e9)
    made = task(site, "pending", "crawl")
    shown: list[str] = []
    real = Page.show

    def counted(page: Page, template: str, title: str, **given: Any) -> Any:
        shown.append(page.bearer.name)
        return real(page, template, title, **given)

    monkeypatch.setattr(Page, "show", counted)

    def look(token: str, **headers: str) -> httpx.Response:
        given = {"Cookie": f"celeriac={token}", "Live": "1"} | headers
        return site.http.get("tasks", headers=given)

    first = look(site.session("admin"))
    packed, plain = (look(site.session("admin"), **{"Accept-Encoding": how}) for how in ("gzip", "identity"))
    assert packed.headers["content-encoding"] == "gzip"
    assert (packed.text, plain.text) == (first.text, first.text)
    assert look(site.session("admin"), **{"If-None-Match": first.headers["etag"]}).status_code == 304
    assert len(shown) == 1
    assert look(site.session("read")).text != first.text
    site.told(f"tasks/{made}/priority", priority=7)
    assert look(site.session("admin")).text != first.text
    looks = len(shown)
    assert look(site.session("admin"), Accept="application/json").headers["content-type"] == "application/json"
    assert len(shown) == looks + 1
    with site.app.database.transaction() as connection:
        connection.execute(text("UPDATE celeriac.api_tokens SET revoked_at = now() WHERE name = 'admin'"))
    assert look(site.session("admin")).status_code == 401


def test_nobody_is_shown_the_address_that_another_came_by(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's page tells how it is asked for by HTTP, from the request's own Host."""
    monkeypatch.setattr(reading, "SERVES", 1e9)
    made = task(site, "pending", "crawl")
    headers = {"Cookie": f"celeriac={site.session('admin')}", "Live": "1"}
    strange = site.http.get(f"tasks/{made}", headers=headers | {"Host": "elsewhere.example"})
    usual = site.http.get(f"tasks/{made}", headers=headers)
    assert "elsewhere.example/api/" in strange.text
    assert "elsewhere.example" not in usual.text
    assert f"{site.host}/api/" in usual.text


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
