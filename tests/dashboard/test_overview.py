"""The overview's headline, and what each page says of other surfaces."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from celeriac.dashboard import reading
from celeriac.dashboard.also import LISTS
from celeriac.dashboard.templates import TABS
from tests.api.works import task
from tests.dashboard.site import Site, looked, worker
from tests.processes import until


def test_nothing_is_well_that_nobody_knows(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    task(site, "completed", "crawl")
    assert "<h1>Not known: nobody has looked at what is watched yet</h1>" in site.html("overview")
    looked(site)
    assert "<h1>All is well</h1>" in site.html("overview")
    monkeypatch.setattr(reading, "TIMEOUT", 0.4)
    with site.locked("beats"):
        told = "<h1>Not known: 1 of 11 checks did not answer; "
        until(lambda: told in site.html("overview"), "the headline")
        assert "missed_schedule, beat_silent could not be read" in site.html("overview")
    site.rows("INSERT INTO celeriac.alerts (name, subject, value, threshold) VALUES ('unpaid', 'shop', 2, 1)")
    with site.locked("beats"):
        told = "<h1>Unpaid: shop; 1 of 11 checks did not answer; "
        until(lambda: told in site.html("overview"), "the headline")


def test_a_look_that_does_not_come_about_or_cannot_read_is_told(site: Site) -> None:
    task(site, "completed", "crawl")
    looked(site, 130)
    assert "<h1>Not known: nobody has looked at what is watched for 2 m 10 s</h1>" in site.html("overview")
    looked(site, 0, "late", "beat_silent", "queue_depth", "unfair")
    told = "<h1>Not known: late, beat_silent, queue_depth and 1 more could not be read</h1>"
    assert told in site.html("overview")


def test_what_has_no_worker_or_may_fire_soon_is_not_well(site: Site) -> None:
    looked(site)
    task(site, "completed", "crawl")
    site.rows("INSERT INTO celeriac.alerts_pending (name, subject) VALUES ('unpaid', 'shop')")
    assert "<h1>1 thing may need you soon</h1>" in site.html("overview")
    task(site, "pending", "crawl")
    text = site.html("overview")
    assert "<h1>No worker: crawl</h1>" in text
    assert ">crawl</a> 1 tasks may start, and no worker takes the queue crawl." in text
    assert "Run <code>celery -A " in text
    site.rows("INSERT INTO celeriac.alerts (name, subject, value, threshold) VALUES ('no_worker', 'crawl', 2, 1)")
    assert "<h1>No worker: crawl</h1>" in site.html("overview"), "one of the two is told, once"


def test_what_has_passed_is_gone_and_what_is_of_one_kind_is_one_line(site: Site) -> None:
    task(site, "completed", "crawl")
    looked(site)
    site.rows("""INSERT INTO celeriac.alerts (name, subject, value, threshold) VALUES ('queue_depth', 'crawl', 2, 1)""")
    site.rows("INSERT INTO celeriac.alerts_pending (name, subject) VALUES ('long_wait', 'crawl')")
    assert "<h1>All is well</h1>" in site.html("overview"), "judged anew, neither is so"
    for n in range(6):
        worker(site, f"gone-{n}", ago=900)
    found = site.html("overview").partition('<ul class="alerts">')[2].partition("</section>")[0]
    assert len(re.findall(r'id="alert-dead_worker-gone-\d"', found)) == 6
    assert "5 more of the same: gone-" in found
    assert found.count("<li id=") - found.partition("<details")[2].count("<li id=") == 1


def test_what_is_silenced_comes_after_what_is_not(site: Site) -> None:
    looked(site)
    task(site, "pending", "crawl")
    worker(site, "gone", ago=900)
    assert "<h1>No worker: crawl, and 1 thing more" in site.html("overview")
    site.rows("""INSERT INTO celeriac.alerts (name, subject, severity, value, threshold)
        VALUES ('no_worker', 'crawl', 'page', 1, 0)""")
    site.rows("""INSERT INTO celeriac.alert_silences (name, subject, until, by)
        VALUES ('no_worker', 'crawl', now() + interval '1 hour', 'ann')""")
    assert "<h1>Dead worker: gone, and 1 thing more" in site.html("overview")


def test_an_empty_system_says_what_to_do_first(site: Site) -> None:
    looked(site)
    text = site.html("overview")
    assert "<h1>Nothing has run yet: start a worker</h1>" in text
    assert "✓ done: declare a role" in text
    assert "<pre>celery -A dashboard worker</pre>" in text
    site.rows("DELETE FROM celeriac.roles WHERE role <> 'crawl'")
    assert "<pre>celeriac tasks enqueue crawl store_id=1</pre>" in site.html("overview")
    worker(site)
    assert "<h1>Nothing has run yet: enqueue a task</h1>" in site.html("overview")
    site.rows("DELETE FROM celeriac.roles")
    text = site.html("overview")
    assert "<h1>Nothing has run yet: declare a role</h1>" in text
    assert "<pre>celeriac migrate</pre>" in text
    task(site, "completed", "crawl")
    assert "First steps" not in site.html("overview")


def test_a_role_whose_attempts_fail_now_is_told_before_its_alert_fires(site: Site) -> None:
    looked(site)
    worker(site, "up")
    ids = [task(site, "pending", "crawl") for _ in range(12)]
    site.rows(
        """INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, why)
        SELECT id, 'crawl', 'retry', 'running', 'pending', 'HTTPError: 503' FROM unnest(CAST(:ids AS bigint[])) id""",
        ids=ids,
    )
    overview, role = site.html("overview"), site.html("roles/crawl")
    assert "<h1>Fails now: crawl" in overview
    assert ">crawl</a> 12 of 12 attempts failed in 5 min, since " in overview
    assert "«HTTPError: #»; 12 tasks" in overview
    assert 'class="health failing"' in role
    assert "✕ 12 of 12 attempts failed in 5 min" in role


def test_the_summary_has_its_figures_beside(site: Site) -> None:
    for _ in range(3):
        task(site, "pending", "crawl")
    task(site, "running", "crawl")
    worker(site, "up")
    worker(site, "struggles", resources={"is_backing_off": True})
    worker(site, "gone", ago=600)
    site.rows("UPDATE celeriac.minutes_until SET until = date_trunc('minute', now())")
    site.rows("""INSERT INTO celeriac.minutes (role, minute, enqueued, completed, failed)
        SELECT 'crawl', until - interval '30 minutes', 7, 90, 10 FROM celeriac.minutes_until""")
    figures = re.sub(r"<[^>]+>", " ", site.html("overview").partition("Task Queue Summary")[2].partition("</dl>")[0])
    figures = " ".join(figures.split())
    for told in (
        "Pending 3 3 ready for a slot", "Running 1 of 6 slots", "1.5 a minute, last hour",
        "last hour: 10.0 % (10 of 100)", "Workers 2 up, 1 backing off, 1 gone",
    ):  # fmt: skip
        assert told in figures, figures


def test_flower_is_linked_where_it_is_said_to_be(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Flower" not in site.html("roles")
    settings = replace(site.app.settings, flower_url="https://flower.example/?a=1&b=2")
    monkeypatch.setattr(site.app, "settings", settings)
    assert '<a href="https://flower.example/?a=1&amp;b=2" rel="noreferrer">Flower</a>' in site.html("roles")


def test_every_page_names_the_command_that_tells_the_same() -> None:
    assert {path for pages in TABS.values() for path, _, _ in pages} == LISTS.keys()
    assert all(command for _, command, _ in LISTS.values())
