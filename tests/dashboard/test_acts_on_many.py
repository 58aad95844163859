"""What is done to ticked tasks, and to all that a filter means: the question before it, and what is told after."""

from __future__ import annotations

import html
import re

import pytest

from celeriac.dashboard import acts, words
from celeriac.dashboard import bulks as dashboard_bulks
from celeriac.dashboard import tasks as dashboard_tasks
from celeriac.insights.tasks import lists
from celeriac.operate import steer
from celeriac.repair import bulks as works
from tests.api.works import audited, row, task
from tests.dashboard.site import Site
from tests.processes import until


def test_ticked_tasks_are_retried_and_each_refusal_is_told(site: Site) -> None:
    failed, over = [task(site, "failed", "crawl") for _ in range(3)], task(site, "completed", "crawl")
    said = site.told("tasks/retry", task=[*failed, over], was_state="failed")
    assert said.startswith("3 tasks will run again, 1 was not changed (")
    assert str(over) in said


def test_refusals_of_the_same_kind_are_one_line_with_a_count(site: Site) -> None:
    failed = [task(site, "failed", "crawl", unique_key=f"store {n}") for n in range(5)]
    holders = [task(site, "pending", "crawl", unique_key=f"store {n}") for n in range(5)]
    over = task(site, "completed", "crawl")
    said = site.told("tasks/retry", task=[*failed, over])
    assert said.count("has its unique key") == 1
    first = ", ".join(map(str, sorted(failed)[:3]))
    assert f"6 were not changed (5 ({first}, …): task {holders[0]} has its unique key " in said
    assert f" by now; {over}: " in said


def test_ticked_tasks_are_cancelled_after_a_question(site: Site) -> None:
    waiting = [task(site, "pending", "crawl") for _ in range(2)]
    asked = site.post("tasks/cancel", task=waiting)
    assert (asked.status_code, "Cancel 2 tasks?" in asked.text) == (200, True)
    assert row(site, waiting[0], "status") == ("pending",)
    assert site.told("tasks/cancel", task=",".join(map(str, waiting)), sure="yes") == "2 tasks cancelled."


def test_a_bulk_changes_just_what_its_page_showed(site: Site) -> None:
    shown = [task(site, "failed", "crawl") for _ in range(7)]
    page = site.html("tasks/matching?move=retry&state=failed&role=crawl")
    assert "Retry 7 tasks" in page
    assert re.search(r'id="live"[^>]* data-still', page)
    later = task(site, "failed", "crawl")
    assert site.told("bulk/retry", **hidden(page), why="mended") == "It was asked for."
    assert ended(site) == ("done", 7, 7, 0)
    assert {row(site, one, "status") for one in shown} == {("pending",)}
    assert row(site, later, "status") == ("failed",)
    (asked, end) = audited(site, "bulk", site.rows.one("SELECT id FROM celeriac.bulk_actions"))[0], shown[0]
    assert (asked[0], asked[1], asked[3]["filter"], asked[4]) == (
        "operate", "bulk retry", {"statuses": ["failed"], "role": "crawl"}, "mended"
    )  # fmt: skip
    assert audited(site, "task", end) == []  # the bulk's rows are those of all of them


def test_a_bulk_says_first_whom_its_move_does_not_mean_and_after_it_why_so_many_were_skipped(site: Site) -> None:
    for status in ("failed", "failed", "running", "completed"):
        task(site, status, "crawl")
    site.rows("UPDATE celeriac.history SET unique_key = 'key ' || id WHERE status = 'failed'")
    page = site.html("tasks/matching?move=retry&role=crawl")
    assert "Retry 2 tasks" in page
    refused = page.partition('<ul id="refused">')[2].partition("</ul>")[0]
    for status in ("running", "completed"):
        assert f"<li>1 is {status} and left alone: only what failed or was cancelled can be retried.</li>" in refused
    for (key,) in site.rows("SELECT unique_key FROM celeriac.history WHERE status = 'failed'"):
        task(site, "pending", "crawl", unique_key=key)
    site.told("bulk/retry", **hidden(page))
    assert ended(site) == ("done", 2, 0, 2)
    said = site.html(f"bulk/{site.rows.one('SELECT id FROM celeriac.bulk_actions')}")
    assert '<dt class="figure">2</dt><dd>task # has its unique key &#39;&#39; by now</dd>' in said


def test_ticked_tasks_are_boosted_given_a_priority_or_due_now(site: Site) -> None:
    waiting = [task(site, "pending", "crawl", priority=90 * n) for n in range(2)]
    over = task(site, "completed", "crawl")
    said = site.told("tasks/boost", task=[*waiting, over])
    assert said.startswith("2 tasks moved up, 1 was not changed (")
    assert [row(site, one, "priority") for one in waiting] == [(20,), (100,)]
    assert site.told("tasks/prioritise", task=waiting, priority="7") == "2 tasks have the priority 7."
    assert {row(site, one, "priority") for one in waiting} == {(7,)}
    assert "give a whole number" in site.told("tasks/prioritise", task=waiting, priority="")
    later = site.app.send_task("crawl", kwargs={"store_id": 1}, countdown=3_600).row_id
    assert site.told("tasks/hasten", task=later) == "1 task due now."
    assert row(site, later, "scheduled_for <= now()") == (True,)
    for move in ("boost", "hasten", "prioritise"):
        assert site.post(f"tasks/{move}", "read", task=waiting, priority="7").status_code == 403


def test_many_ticked_tasks_keep_their_priority_over_the_question(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_tasks, "UNASKED", 1)
    waiting = [task(site, "pending", "crawl") for _ in range(2)]
    asked = site.post("tasks/prioritise", task=waiting, priority="7").text
    assert "Prioritise 2 tasks?" in asked
    assert site.told("tasks/prioritise", **hidden(asked), why="asked") == "2 tasks have the priority 7."


def test_a_bulk_that_few_tasks_match_says_that_there_may_be_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "LOOKS_AT", 4)
    monkeypatch.setattr(lists, "VAIN", 2)
    monkeypatch.setattr(words, "CAP", 5)
    monkeypatch.setattr(dashboard_bulks, "UNASKED", 5)
    rare, *_ = [task(site, "failed", "crawl", error_message="usual") for _ in range(40)]
    site.rows("UPDATE celeriac.history SET error_message = 'rare' WHERE id = :id", id=rare)
    page = site.html("tasks/matching?move=retry&error=rare")
    assert "Retry 0 tasks or more?" in page
    assert "match that the count stopped there" in page
    assert "need a reason" in site.told("bulk/retry", **hidden(page))
    assert site.told("bulk/retry", **hidden(page), why="mended") == "It was asked for."
    assert ended(site) == ("done", 1, 1, 0)


def hidden(page: str) -> dict[str, str]:
    """What the form of a question has besides what one types."""
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.partition("<main")[2])
    return {name: html.unescape(value) for name, value in fields}


def ended(site: Site) -> tuple[object, ...]:
    """State, asked, done and skipped of the only bulk, once it is over."""
    wanted = "SELECT state, asked, done, skipped FROM celeriac.bulk_actions WHERE ended_at IS NOT NULL"
    until(lambda: site.rows(wanted) != [] and not works._working.locked(), "the bulk to end")
    (found,) = site.rows(wanted)
    return tuple(found)


def test_a_bulk_of_one_problem_retries_its_failures(site: Site) -> None:
    mine, other = task(site, "failed", "crawl"), task(site, "failed", "crawl")
    site.rows("UPDATE celeriac.history SET error_message = 'KeyError: x' WHERE id = :id", id=other)
    groups = site.get("failures.json").json()["failures"]["groups"]
    (group,) = [one for one in groups if one["message"] == "broken"]
    page = site.html(f"retry-failures/{group['fingerprint']}?role=crawl")
    assert "Retry 1 task" in page
    site.told("bulk/retry", **hidden(page))
    assert ended(site) == ("done", 1, 1, 0)
    assert (row(site, mine, "status"), row(site, other, "status")) == (("pending",), ("failed",))


def test_a_bulk_gives_another_priority_and_is_told_on_its_page(site: Site) -> None:
    waiting = [task(site, "pending", "crawl") for _ in range(3)]
    page = site.html("tasks/matching?move=prioritise&role=crawl")
    assert "Prioritise 3 tasks" in page
    site.told("bulk/prioritise", **hidden(page), to="7")
    assert ended(site) == ("done", 3, 3, 0)
    assert {row(site, one, "priority") for one in waiting} == {(7,)}
    said = site.html("bulk")
    number = re.search(r'id="bulk-(\d+)"', said)
    assert number
    said = site.html(f"bulk/{number[1]}")
    assert re.findall(r'<dd id="(\w+)">([^<]+)<', said) == [
        ("asked", "3"),
        ("done", "3"),
        ("skipped", "0"),
        ("left", "0"),
    ]
    assert "all tasks with role crawl" in said
    assert "Nothing was changed: the bulk" in site.told(f"bulk/{number[1]}/stop")


def test_a_bulk_of_many_needs_a_reason_and_what_is_wrong_with_it_is_said(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard_bulks, "UNASKED", 1)
    for _ in range(2):
        task(site, "failed", "crawl")
    page = site.html("tasks/matching?move=retry&role=crawl")
    assert 'name="why" required' in page
    for fields, says in (
        (hidden(page), "need a reason"), ({"why": "x"}, "until="),
        (hidden(page) | {"upto": "9" * 15, "why": "x"}, "until="),
        (hidden(page) | {"role": "", "why": "x"}, "a bulk of everything"),
    ):  # fmt: skip
        assert says in site.told("bulk/retry", **fields)
    assert "to=" in site.told("bulk/prioritise", **hidden(page), why="x")
    assert site.rows("SELECT * FROM celeriac.bulk_actions") == []


def test_a_bulk_that_is_stopped_midway_says_what_it_has_done(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steer, "BATCH", 2)
    monkeypatch.setattr(acts, "PATIENCE", 0.1)
    failed = [task(site, "failed", "crawl") for _ in range(4)]
    with site.rows.engine.connect() as other:
        other.exec_driver_sql("BEGIN")
        other.exec_driver_sql(f"SELECT 1 FROM celeriac.history WHERE id = {failed[3]} FOR UPDATE")
        said = site.told("tasks/retry", task=failed)
        other.exec_driver_sql("ROLLBACK")
    assert said.startswith("2 tasks will run again. Then it stopped, and the rest is as it was: somebody&#39;s open")
    assert [row(site, one, "status") for one in failed] == [("pending",)] * 2 + [("failed",)] * 2


def test_a_bulk_of_everything_is_a_slip(site: Site) -> None:
    assert site.get("tasks/matching?move=retry").status_code == 422
    assert "None of them can be retried" in site.html("tasks/matching?move=retry&state=pending")
