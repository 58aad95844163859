"""What a page says where it has nothing to show is what it knows."""

from __future__ import annotations

import html
import re
from importlib import import_module

import pytest

from celeriac.insights.tasks import lists
from tests.api.works import task
from tests.dashboard.site import Site


def said(site: Site, path: str) -> str:
    """The page's text, in one line."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", site.html(path)))


def test_a_name_that_hides_all_dead_letters_is_not_none_at_all(site: Site) -> None:
    assert "became a task, was replayed or discarded, or is over 30 d old" in said(site, "dead-letters")
    site.rows("""INSERT INTO celeriac.dead_letters (digest, name, reason, size, message)
        VALUES (sha256('x'), 'shop.charge', 'no role', 1, 'x')""")
    assert "There is none for shop.pay; of others there may be some." in said(site, "dead-letters?name=shop.pay")
    assert "There are no older ones for shop.charge." in said(site, "dead-letters?name=shop.charge&before=1")


def test_that_nothing_failed_is_said_with_its_base(site: Site) -> None:
    site.rows("UPDATE celeriac.minutes_until SET until = date_trunc('minute', now())")
    site.rows("""INSERT INTO celeriac.minutes (role, minute, enqueued, completed, failed)
        SELECT 'crawl', until - interval '30 minutes', 7, 5, 2 FROM celeriac.minutes_until""")
    assert re.search(r"Nothing failed in this time: until \S+ 7 tasks ended\.", said(site, "failures"))
    assert re.search(r"Nothing of resync failed in this time: until \S+ 0 tasks", said(site, "failures?role=resync"))
    assert "Nothing failed in this time." in said(site, "failures?since=2d"), "the minutes do not tell"


def test_failures_that_were_not_looked_at_are_not_none(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("celeriac.insights.failures.failures"), "LOOKS_AT", 2)
    for _ in range(3):
        task(site, "failed", "crawl")
    site.rows("UPDATE celeriac.history SET completed_at = completed_at - interval '2 seconds'")
    told = (
        "None of the newest 2 failures, by number, ended in this time; there are older ones, which were not looked at."
    )
    assert told in said(site, "failures?since=1s")


def test_a_worker_that_was_forgotten_may_have_been(site: Site) -> None:
    assert "No worker has reported within 30 d." in said(site, "workers")
    assert "one that is silent for 30 d is forgotten" in site.get("workers/nobody").text


EVENT = """INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, by, why)
    VALUES (88123, :role, 'retry', 'failed', 'pending', 'ann', 'the partner is back')"""


@pytest.mark.parametrize(
    ("role", "keep", "rule"),
    [
        ("resync", None, "Finished tasks of resync are kept 30 d."),
        ("resync", "0", "Finished tasks of resync are not kept."),
        ("resync", "null", "Completed tasks of resync are not kept, others 30 d."),
        ("resync", '"forever"', "Tasks of resync are kept for ever: it was deleted by hand."),
        ("unknown", None, "Tasks of unknown are kept for ever: it was deleted by hand."),
        ("celery.chord", None, "Finished tasks of celery.chord are kept 30 d."),
    ],
)
def test_a_task_that_was_pruned_says_by_which_rule_and_what_happened_to_it(
    site: Site, role: str, keep: str | None, rule: str
) -> None:
    if keep is not None:
        site.rows("UPDATE celeriac.roles SET definition = jsonb_set(definition, '{keep}', CAST(:k AS jsonb))", k=keep)
    site.rows(EVENT, role=role)
    answer = site.get("tasks/88123")
    assert answer.status_code == 404
    assert rule in answer.text
    assert "the partner is back" in answer.text
    assert site.get("tasks/88123.json").json()["events"][0]["by"] == "ann"


def test_what_never_was_is_not_said_to_be_kept(site: Site) -> None:
    for path in ("workers/nobody", "schedules/never", "roles/nothing", "tasks/88123"):
        assert "What has finished is kept as long" not in site.get(path).text
    assert "what happened to tasks is kept 30 d" in site.get("tasks/88123").text.lower()


def test_a_short_page_of_a_search_says_how_many_it_looked_at(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "LOOKS_AT", 101)
    old = task(site, "failed", "crawl", kwargs='{"store_id": 17}')
    for _ in range(110):
        task(site, "failed", "crawl", kwargs='{"store_id": 18}')
    assert "None of the 101 tasks that were looked at is meant; there are older ones." in said(
        site, "tasks?arg.store_id=17"
    )
    new = task(site, "failed", "crawl", kwargs='{"store_id": 17}')
    short = said(site, "tasks?arg.store_id=17")
    assert "These are all that are meant among the 101 tasks that were looked at; there are older ones." in short
    text = site.html("tasks?arg.store_id=17")
    assert f'id="task-{new}"' in text
    further = re.search(r'id="looked-at".*?href="\?([^"]+)"', text, re.DOTALL)
    assert further is not None
    rest = site.html(f"tasks?{html.unescape(further[1])}")
    assert f'id="task-{old}"' in rest
    assert 'id="looked-at"' not in rest, "it reached the end"
