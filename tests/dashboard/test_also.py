"""What a page says of SQL, the API and the command line is the same there: with its filter, or of what it is about."""

from __future__ import annotations

import html
import re
import shlex
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from celeriac.cli import within_celery
from celeriac.dashboard import tasks, trail
from celeriac.dashboard.also import also
from celeriac.dashboard.templates import TABS
from tests.api.works import task
from tests.dashboard.site import Site, worker

EVIL = 'it\'s a \\ "key"; DROP 7%'


@pytest.fixture
def site(still: Site) -> Site:
    """One for all: what these tests enqueue, no other looks at."""
    return still


def told(site: Site, path: str, **asked: str) -> dict[str, str]:
    answer = site.get(path, params=asked)
    assert answer.status_code == 200, answer.text[:500]
    footer = answer.text.partition("<footer>")[2].partition("</footer>")[0]
    found = re.findall(r"as (SQL|API|CLI) <code>(.*?)</code>", footer, re.DOTALL)
    return {kind: html.unescape(text) for kind, text in found}


def run(site: Site, said: dict[str, str]) -> None:
    """Each of them is taken."""
    site.rows(said["SQL"].replace(":", "\\:"))
    if "API" in said:
        headers = {"Authorization": f"Bearer {site.tokens['read']}"}
        answer = site.http.get(f"http://{site.host}{said['API']}", headers=headers)
        assert answer.status_code == 200, (said["API"], answer.text)
    if "CLI" in said:
        name, *arguments = shlex.split(said["CLI"])
        assert name == "celeriac"
        done: Any = CliRunner().invoke(within_celery, arguments, obj=SimpleNamespace(app=site.app))
        assert done.exit_code in (0, 1), (said["CLI"], done.output)


@pytest.mark.parametrize("page", [path for pages in TABS.values() for path, _, _ in pages])
def test_every_page_says_how_sql_tells_the_same(site: Site, page: str) -> None:
    said = told(site, page)
    site.rows(said["SQL"])
    assert said.keys() >= {"SQL", "CLI"}


@pytest.mark.parametrize(
    ("path", "asked", "has"),
    [
        ("tasks", {"state": "failed,cancelled", "role": "crawl"}, "--status failed --status cancelled --role crawl"),
        ("tasks", {"lock": EVIL, "unique": EVIL, "worker": EVIL, "error": EVIL, "account": EVIL}, "--lock-key"),
        ("tasks", {"newer": "1h", "older": "30s", "arg.store_id": "17"}, "--newer-than 3600 --older-than 30"),
        ("tasks", {"account": "(none)"}, "--account ''"),
        ("tasks", {"state": "queued", "arg.note": EVIL}, "--status queued"),
        ("failures", {"role": "crawl", "since": "7d"}, "--role crawl --since 604800"),
        ("tasks", {"priority": "50..70", "schedule": EVIL}, "--priority 50..70"),
        ("audit", {"kind": "role", "target": EVIL}, "--kind role"),
        ("audit", {"by": EVIL, "via": "API", "action": "retry", "newer": "1h"}, "--newer-than 3600"),
        ("dead-letters", {"name": "shop.pay"}, "celeriac dead-letters list --name shop.pay"),
        ("capacity", {"role": "crawl"}, "celeriac roles capacity crawl"),
        ("decisions", {"role": "crawl"}, "celeriac roles decisions crawl"),
        ("tasks", {"waits": "lock"}, "--waits-for lock"),
        (
            "tasks/matching",
            {"move": "retry", "state": "failed", "role": "crawl"},
            "tasks list --status failed --role crawl",
        ),
        ("unique-keys", {}, "celeriac locks unique-keys"),
        ("unique-keys", {"role": "crawl"}, "celeriac locks unique-keys crawl"),
    ],
)
def test_a_filter_is_said_in_each_way(site: Site, path: str, asked: dict[str, str], has: str | None) -> None:
    said = told(site, path, **asked)
    assert (has or "") in said.get("CLI", "")
    assert (has is None) is ("CLI" not in said)
    assert "API" in said
    run(site, said)


def test_a_range_that_is_none_is_said_in_no_way(site: Site) -> None:
    assert "SQL" not in told(site, "tasks", priority="high")


def test_the_three_mean_the_same_tasks(site: Site) -> None:
    mine = task(site, "failed", "crawl", lock_key=EVIL, kwargs='{"store_id": 17}')
    task(site, "failed", "crawl", lock_key="other", kwargs='{"store_id": 17}')
    said = told(site, "tasks", state="failed", lock=EVIL, **{"arg.store_id": "17"})
    assert site.rows(f"SELECT id FROM ({said['SQL']}) AS told".replace(":", "\\:")) == [(mine,)]
    headers = {"Authorization": f"Bearer {site.tokens['read']}"}
    found = site.http.get(f"http://{site.host}{said['API']}", headers=headers).json()["tasks"]
    assert [row["id"] for row in found] == [mine]
    arguments = [*shlex.split(said["CLI"])[1:], "--json"]
    listed = CliRunner().invoke(within_celery, arguments, obj=SimpleNamespace(app=site.app)).output
    assert f'"id": {mine}' in listed
    assert '"other"' not in listed


def test_one_thing_is_said_in_each_way(site: Site) -> None:
    number = task(site, "running", "crawl", lock_key=EVIL, account=EVIL)
    worker(site, EVIL)
    evil = [(path, EVIL) for path in ("accounts", "locks", "workers")]
    for path, of in (("tasks", str(number)), ("roles", "crawl"), *evil):
        said = told(site, f"{path}/{quote(of, safe='')}")
        assert said.keys() == {"SQL", "API", "CLI"}, path
        run(site, said)


OF_PAGES = {"tasks": tasks.FILTERS, "audit": trail.FILTERS, "failures": ("role", "since", "state")}


@pytest.mark.parametrize(("page", "name"), [(page, name) for page, names in OF_PAGES.items() for name in names])
def test_a_way_that_has_not_got_the_filter_is_left_out(page: str, name: str) -> None:
    for kind, text in also(page, "", {name: "17"}):
        assert "17" in text, (kind, text)


def test_a_text_is_quoted_for_whom_it_is_meant() -> None:
    said = dict(also("tasks", "", {"lock": "a'b\\c d"}))
    assert "lock_key = E'a''b\\\\c d'" in said["SQL"]
    assert said["API"] == "/api/tasks?lock_key=a%27b%5Cc+d"
    assert shlex.split(said["CLI"])[-1] == "a'b\\c d"
