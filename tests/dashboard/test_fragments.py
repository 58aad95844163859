"""A polled page is put together of what it was made of before: only what shows something else is rendered anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from markupsafe import Markup

from celeriac.dashboard import reading
from celeriac.dashboard.shown import Fragments
from tests.api.works import task
from tests.dashboard.pages import ONE, PAGES, filled
from tests.dashboard.site import Site

#: By which two come who look.
KNOWN, FRESH = "known.example", "fresh.example"

#: Ages tick in the browser.
AGE = re.compile(r"(<time[^>]*>)[^<]*")


class Rows:
    """A macro that counts what it makes."""

    def __init__(self) -> None:
        self.made: list[tuple[object, ...]] = []

    def __call__(self, *of: object) -> Markup:
        self.made.append(of)
        return Markup("row {}").format(of)


def test_what_shows_the_same_is_not_made_anew() -> None:
    row = Rows()
    first = Fragments()
    at = datetime(2026, 11, 25, tzinfo=UTC)
    made = first.get("task-1", ({"id": 1, "at": at, "of": [None, 1.5]}, True), row)
    again = Fragments(first.made)
    assert again.get("task-1", ({"id": 1, "at": at.replace(), "of": [None, 1.5]}, True), row) is made
    assert len(row.made) == 1


@pytest.mark.parametrize(
    "other", [({"id": 1, "n": 3}, True), ({"id": 1, "n": 2.0}, True), ({"id": 1, "n": 2}, False), ({"id": 1, "n": 2},)]
)
def test_what_shows_another_thing_is_made_anew(other: tuple[object, ...]) -> None:
    row = Rows()
    first = Fragments()
    first.get("task-1", ({"id": 1, "n": 2}, True), row)
    assert Fragments(first.made).get("task-1", other, row) == f"row {Markup.escape(str(other))}"
    assert len(row.made) == 2


def test_what_a_rendering_left_out_is_forgotten() -> None:
    row = Rows()
    first = Fragments()
    first.get("task-1", (1,), row)
    second = Fragments(first.made)
    second.get("task-2", (2,), row)
    assert second.made.keys() == {"task-2"}


def looks(site: Site, path: str, host: str) -> str:
    html = site.get(path, headers={"Live": "1", "Host": host}).text
    return AGE.sub(r"\1", html.replace(host, "HOST"))


def change(site: Site, furnished: dict[str, int]) -> None:
    """Of each table that is made of fragments: another row, and a change of one that was there."""
    task(site, "pending", "crawl")
    site.rows("UPDATE worker_tasks SET priority = 77 WHERE id = ANY (:ids)", ids=list(furnished.values()))
    site.rows("UPDATE celeriac.workers SET resources = '{\"memory_percent\": 95}', last_heartbeat_at = now()")
    site.rows("UPDATE celeriac.passes SET repeated = repeated + 5, last_at = now()")
    site.rows("UPDATE celeriac.account_policies SET weight = weight + 3")
    site.rows("UPDATE celeriac.roles SET definition = definition || '{\"window\": 7}'")


def test_a_page_of_fragments_is_the_page_as_it_would_be_rendered_anew(
    site: Site, furnished: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes by another address has no rendering before theirs."""
    paths = (*PAGES, *(filled(path, furnished) for path in ONE))
    before = {path: looks(site, path, KNOWN) for path in paths}
    change(site, furnished)
    monkeypatch.setattr(reading, "SERVES", 1e9)
    site.reading.forget()
    changed = set()
    for path in paths:
        now = looks(site, path, KNOWN)
        assert now == looks(site, path, FRESH), path
        changed |= {path} - ({path} if now == before[path] else set())
    assert {"tasks", "workers", "decisions", "roles/crawl"} <= changed


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all that is made."""
    real, made = Fragments.get, []

    def counted(of: Fragments, name: str, values: tuple[object, ...], make: Callable[..., Markup]) -> Markup:
        def noted(*values: object) -> Markup:
            made.append(name)
            return make(*values)

        return real(of, name, values, noted)

    monkeypatch.setattr(Fragments, "get", counted)
    return made


@pytest.mark.parametrize("path", ["tasks", "workers", "decisions", "roles/crawl"])
def test_figures_read_anew_that_are_the_same_make_nothing_anew(full: Site, made: list[str], path: str) -> None:
    looks(full, path, KNOWN)
    first = len(made)
    assert first
    full.reading.forget()
    looks(full, path, KNOWN)
    assert made[first:] == []


def test_one_change_is_one_row_made_anew(site: Site, made: list[str]) -> None:
    ids = [task(site, "pending", "crawl") for _ in range(10)]
    looks(site, "tasks", KNOWN)
    assert len(made) == len(ids)
    site.rows("UPDATE worker_tasks SET priority = 77 WHERE id = :id", id=ids[3])
    site.reading.forget()
    assert "77" in looks(site, "tasks", KNOWN)
    assert made[len(ids) :] == [f"task-{ids[3]}"]
