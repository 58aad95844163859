"""What the pages say of the machinery: beats that are gone, tickets that are."""

from __future__ import annotations

import json
import re

import pytest
import redis

from celeriac.dashboard import reading
from celeriac.doctor import examine
from celeriac.repair import sweep
from celeriac.schedules import written
from tests.api.works import audited, row, task
from tests.dashboard.odd import command
from tests.dashboard.site import Site, worker
from tests.processes import until


def test_a_beat_that_is_gone_is_told_with_the_command_that_starts_one(site: Site) -> None:
    site.rows("""INSERT INTO celeriac.beats (beat_id, hostname, pid, last_tick_at)
        VALUES ('b', 'node-7', 3, now() - interval '90 seconds')""")
    assert "No beat ticks since" in site.html("schedules")
    assert "celery -A dashboard beat" in site.html("schedules")
    assert "✕ none" in site.html("overview")
    site.rows("UPDATE celeriac.beats SET last_tick_at = now(), late_by = 0.4")
    assert "1 beat alive" in site.html("schedules")
    assert "400 ms late" in site.html("schedules")


def test_tickets_that_redis_has_lost_are_told_beside_what_sql_has_claimed(site: Site) -> None:
    client = redis.Redis.from_url(site.app.settings.redis_url)
    client.flushdb()
    task(site, "pending", "crawl")
    role, _ = site.app.role_named("crawl")
    assert site.app.dispatcher.dispatch(role) == 1
    assert "in step" in site.html("system")
    client.flushdb()
    assert "SQL ahead by 1: workers have just taken them, or they are lost" in site.html("system")
    assert 'id="ticket-hours"' not in site.html("system")
    sweep(site.app, "lost_tickets")
    (hour,) = re.findall(r'<tr id="hour-crawl">.*?</tr>', site.html("system"), re.DOTALL)
    assert 'aria-label="crawl: at most 1 tickets, SQL ahead by at most 1"' in hour
    site.rows("UPDATE celeriac.ticket_samples SET in_redis = NULL")
    (hour,) = re.findall(r'<tr id="hour-crawl">.*?</tr>', site.html("system"), re.DOTALL)
    assert hour.endswith('<td class="figure">1</td><td class="figure">0</td><td class="figure">1</td></tr>')
    client.close()


def test_what_postgres_carries_is_told_with_transactions_that_keep_vacuum_off(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.rows("INSERT INTO worker_tasks (task_id, role) SELECT 'many ' || i, 'crawl' FROM generate_series(1, 100) AS i")
    site.rows("ANALYZE celeriac.tasks")
    text = site.html("system")
    assert "No transaction is open for over 10 m" in text
    assert "connections are in use" in text
    (row,) = re.findall(r'<tr id="table-tasks">.*?</tr>', text)
    assert "~100" in row
    assert "kB" in row
    monkeypatch.setattr("celeriac.insights.fleet.condition.OLD", 0.0)
    with site.rows.engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        assert f'id="transaction-{pid}"' in site.html("system")


def test_the_doctor_s_checks_are_on_the_page_with_what_cures_them(site: Site) -> None:
    text = site.html("system")
    for question in ("tasks are not processed", "failed tasks are not retried", "schedules do not run"):
        assert f"<td>{question}</td>" in text
    (priorities,) = re.findall(r'<tr id="doctor-priorities-1">.*?</tr>', text)
    assert "priorities do not count" in priorities
    assert "✓" in priorities
    task(site, "pending", "crawl")
    (roles, *_) = re.findall(r'<tr id="doctor-roles-1">.*?</tr>', site.html("system"))
    assert "crawl: 1 tasks may start, and no worker takes the queue crawl" in roles
    assert "✕" in roles
    assert "worker -Q crawl" in roles
    found = {one["check"]: one for one in site.get("system.json").json()["doctor"]}
    told = {one.check: one.ok for one in examine(site.app)}
    assert {name: one["ok"] for name, one in found.items()} == told
    assert not told["roles"]


def test_sweeps_are_told_with_what_they_came_to_within_a_day(site: Site) -> None:
    site.rows("""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, kind)
        VALUES ('sweep rescue', 'rescue', '@every 30s', 'sweep'), ('sweep prune', 'prune', '@every 30s', 'sweep')""")
    for report in ({"done": 3, "seconds": 0.5}, {"error": "no disk", "seconds": 1.5}):
        with site.app.database.transaction() as connection:
            written.ran(connection, "sweep rescue", report)
    site.rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() + interval '9 s'")
    text = site.html("system")
    assert "None is overdue by more than a minute. Not run within 24 h: sweep prune." in text
    with site.app.database.transaction() as connection:
        written.ran(connection, "sweep prune", {"done": 0, "seconds": 0.5})
    site.rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() + interval '9 s'")
    until(lambda: "All 2 sweeps ran in time" in site.html("system"), "the page to be read anew")
    (rescue,) = re.findall(r'<tr id="runs-sweep rescue">.*?</tr>', text)
    assert re.findall(r'"(?:figure|error)">([^<]+)<', rescue) == ["2", "1", "3", "1 s", "1.5 s", "no disk"]
    site.rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() - interval '2 min' WHERE target = 'prune'")
    assert "1 sweep is overdue or cannot run: sweep prune." in site.html("system")
    site.rows("UPDATE celeriac.sweep_runs SET hour = hour - interval '26 hours'")
    with site.app.database.transaction() as connection:
        written.ran(connection, "sweep rescue", {"done": 1, "seconds": 0.1})
    assert site.rows("SELECT runs, done FROM celeriac.sweep_runs WHERE name = 'sweep rescue'") == [(1, 1)]


def test_no_page_waits_for_a_doctor_that_is_held_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "TIMEOUT", 0.05)
    with site.locked("roles"):
        text = site.html("system")
        assert "The doctor still examines" in text
        assert "Nothing is wrong" not in text
    until(lambda: 'id="doctor-roles-1"' in site.html("system"), "the doctor's answer")


def test_what_a_dead_worker_holds_is_freed_by_who_is_sure(site: Site) -> None:
    worker(site, "dead", ago=300)
    made = task(site, "running", "crawl", lock_key="store:7")
    site.rows("UPDATE celeriac.tickets SET worker_id = 'dead', heartbeat_at = now() - interval '5 minutes'")
    assert "Free what it holds" in site.html("workers/dead")
    assert 'href="../workers/dead"' in site.html("locks/store:7")
    asks = site.post("free-tasks-of/dead", "operate")
    assert (asks.status_code, "Free 1 task of dead?" in asks.text) == (200, True)
    assert row(site, made, "status") == ("running",)
    assert site.told("free-tasks-of/dead", sure="1") == "1 task of dead freed: crawl: 1."
    assert row(site, made, "status, losses") == ("pending", 1)
    assert audited(site, "task", made)[0][:2] == ("operate", "recover-stale")
    assert "Free what it holds" not in site.html("workers/dead")


def test_what_a_live_worker_holds_is_not_freed(site: Site) -> None:
    worker(site, "alive")
    made = task(site, "running", "crawl")
    site.rows("UPDATE celeriac.tickets SET worker_id = 'alive'")
    assert "Free what it holds" not in site.html("workers/alive")
    assert "so it lives" in site.told("free-tasks-of/alive", sure="1")
    assert "so it lives" in site.post("free-tasks-of/alive", "operate").text
    assert row(site, made, "status") == ("running",)


def test_a_workers_hour_is_a_chart_and_a_table_with_what_it_runs_and_did(site: Site) -> None:
    worker(site, "tired")
    site.rows("UPDATE celeriac.workers SET version = '0.1.0' WHERE worker_id = 'tired'")
    assert "It has not reported in the last hour" in site.html("workers/tired")
    made = task(site, "running", "crawl", progress='{"pages": 17}')
    site.rows("UPDATE celeriac.tickets SET worker_id = 'tired'")
    ended = task(site, "failed", "crawl", worker_id="tired")
    site.rows("UPDATE celeriac.history SET worker_id = 'tired' WHERE id = :i", i=ended)
    site.rows("""INSERT INTO celeriac.worker_samples
        SELECT 'tired', date_trunc('minute', now()) - i * interval '1 minute', 60 + i, NULL,
            CASE WHEN i < 3 THEN 'Memory at 87 %, threshold 85 %' END
        FROM generate_series(0, 30) i""")
    text = site.html("workers/tired")
    assert "Memory 60 to 90 %, CPU unknown; it backed off in 3 of 31 minutes." in text
    for part in ('<path class="memory" d="M', '<path class="backs-off" stroke-width='):
        assert part in text, part
    chart = text.partition('<svg class="chart"')[2].partition("</svg>")[0]
    assert 'class="cpu"' not in chart
    table = text.partition('<details id="hour-table">')[2].partition("</details>")[0]
    assert table.count("Memory at 87 %, threshold 85 %") == 3
    assert table.count("unknown") == 31
    (line,) = re.findall(rf'<tr id="task-{made}">.*?</tr>', text, re.DOTALL)
    assert "{&#34;pages&#34;: 17}" in line
    for path in ("workers", "workers/tired"):
        (told,) = re.findall(r'<tr id="worker-tired">.*?</tr>', site.html(path), re.DOTALL)
        for says in ("pid 12, 0.1.0", '<td class="figure">1</td>', "node-7"):
            assert says in told, (path, says)


def test_a_sweep_says_what_it_did_how_long_it_took_and_what_went_wrong(site: Site) -> None:
    site.rows("""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, kind, last_report) VALUES
        ('rescue', 'rescue', '@every 30s', 'sweep', '{"done": 1234, "seconds": 0.25, "by": "b"}'),
        ('prune', 'prune', '@every 30s', 'sweep', '{"error": "disk full, all of it", "seconds": 2, "by": "b"}')""")
    text = site.html("system")
    found = re.findall(r'<tr id="sweep-.*?</tr>', text, re.DOTALL)
    prune, rescue = (" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in found)
    assert "– 2 s ✕ disk full, all of it" in prune
    assert "1 234 250 ms" in rescue
    assert "✕" not in rescue


def test_the_page_system_says_what_is_kept_and_how_old_tickets_are(site: Site) -> None:
    task(site, "claimed", "crawl")
    site.rows("UPDATE celeriac.tickets SET claimed_at = now() - interval '5 minutes'")
    text = site.html("system")
    assert re.search(r'<tr id="queue-crawl">.*<time [^>]*data-ago>5 m</time></td></tr>', text)
    kept = " ".join(re.sub(r"<[^>]+>", " ", text.partition('<h2 id="kept">')[2]).split())
    assert "silent workers 30 d" in kept
    assert "Dead letters 30 d" in kept
    assert "Minutes of the charts 8 d" in kept


@pytest.mark.parametrize("share", ["high", True, 10**4000, [1], None])
def test_a_worker_in_another_language_may_report_anything_as_its_share(site: Site, share: object) -> None:
    site.rows(
        """INSERT INTO celeriac.workers (worker_id, hostname, pid, queues, concurrency, status, resources)
        VALUES ('theirs', 'h', 1, '["crawl"]', 1, 'active', CAST(:told AS jsonb))""",
        told=json.dumps({"memory_percent": share, "cpu_percent": share}),
    )
    for path in ("workers", "workers/theirs"):
        assert "unknown" in site.html(path)
    listed = command(site, "workers", "list")
    assert (listed.exit_code, "theirs" in listed.stdout) == (0, True), listed.output
