"""Figures: what there is, what of it was counted, and how many workers that takes."""

from __future__ import annotations

import re

import httpx
import pytest

from celeriac.dashboard import overview
from tests.api.works import task
from tests.dashboard.site import Site, worker
from tests.postgres.finished import live_worker


def test_numbers_are_exact(site: Site, furnished: dict[str, int]) -> None:
    assert "9007199254740993" in site.html(f"tasks/{furnished['failed']}")


def test_the_task_queue_summary(site: Site) -> None:
    for status, n in (("pending", 3), ("running", 2), ("completed", 4), ("failed", 1)):
        for _ in range(n):
            task(site, status, "crawl")
    summary = site.html("").partition("Task Queue Summary")[2].partition("</dl>")[0]
    said = re.findall(r"<dt>(\w+)</dt><dd id=\"n-\w+\"><a[^>]*>([^<]+)<", summary)
    assert said == [("Pending", "3"), ("Running", "2"), ("Completed", "4"), ("Failed", "1")]


def test_more_tasks_than_slots_are_never_all_at_work(site: Site) -> None:
    """A ticket has many tasks, and its slot runs one after the other."""
    for _ in range(60):
        task(site, "running", "crawl")
    assert "no worker reports any more" in site.html("overview")
    worker(site, "up", concurrency=4)
    site.rows("UPDATE celeriac.tickets SET worker_id = 'up'")
    assert "one after the other in 4 slots" in site.html("overview")
    assert "60 tasks in 4 slots:" in site.html("workers")


def test_what_has_not_been_counted_yet_is_not_none(site: Site) -> None:
    task(site, "completed", "crawl")
    assert "a minute, last hour" not in site.html("overview"), "nothing was counted for an hour"
    site.rows("UPDATE celeriac.minutes_until SET until = date_trunc('minute', now())")
    assert "a minute, last hour" not in site.html("overview"), "what has just ended is not counted yet"
    site.rows("""INSERT INTO celeriac.minutes (role, minute, enqueued, completed, failed)
        SELECT 'crawl', until - interval '1 minute', 1, 90, 0 FROM celeriac.minutes_until""")
    assert "1.5 a minute, last hour" in site.html("overview")


def test_a_rate_has_no_more_figures_than_are_known(site: Site) -> None:
    task(site, "pending", "crawl")
    site.rows("INSERT INTO celeriac.batchers (role, cursor, seconds_per_task) VALUES ('crawl', '', 0.0000692)")
    live_worker(site.rows, queues='["crawl"]')
    site.rows("UPDATE celeriac.minutes_until SET until = date_trunc('minute', now())")
    site.rows("""INSERT INTO celeriac.minutes (role, minute, enqueued, completed, failed, waits, runs)
        SELECT 'crawl', until - interval '1 minute', 1, 0, 0, '{}', '{}' FROM celeriac.minutes_until""")
    text = site.html("capacity?role=crawl&workers=1&hours=1")
    assert "each worker does 52\u202f000\u202f000 an hour" in text
    assert not re.search(r"\d{3,}\.\d", re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL))


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
