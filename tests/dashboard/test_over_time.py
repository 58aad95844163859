"""What happened over time is drawn, said in words and told as a table, by the server alone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from celeriac.insights.history.histogram import counts
from tests.api.works import task
from tests.dashboard.site import Site


def minute(site: Site, ago: int, role: str = "crawl", **figures: object) -> None:
    """Of so many minutes before what is counted."""
    names = ", ".join(figures)
    given = ", ".join(f":{name}" for name in figures)
    site.rows(
        f"""INSERT INTO celeriac.minutes (role, minute, {names})
        SELECT :role, until - :ago * interval '1 minute', {given} FROM celeriac.minutes_until""",
        role=role, ago=ago, **figures,
    )  # fmt: skip


def count_up_to_now(site: Site) -> None:
    site.rows("UPDATE celeriac.minutes_until SET until = date_trunc('minute', now())")


def forget(site: Site) -> None:
    """What was read is read anew."""
    site.reading.forget()


def words(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_the_overview_draws_what_ended_and_what_came(site: Site) -> None:
    task(site, "completed", "crawl")
    count_up_to_now(site)
    minute(site, 1, enqueued=40, completed=10, failed=5)
    minute(site, 90, enqueued=7, completed=3)
    said = site.html("overview")
    chart = said.partition('<section aria-labelledby="flow">')[2].partition("</section>")[0]
    drawn = chart.partition('<svg class="chart"')[2].partition("</svg>")[0]
    assert re.findall(r'<path class="(\w+)"[^>]* d="M714.4 [\d.]+V[\d.]+"', drawn) == ["completed", "failed"]
    assert "10 completed, 5 failed, 40 enqueued" in words(chart)
    assert "More was enqueued than ended in 1 of 60." in words(chart)
    rows = [words(row) for row in re.findall(r"<tr>.*?</tr>", chart, re.DOTALL)]
    assert len(rows) == 61
    assert rows[1].endswith("40 0 10 5 0 0")
    assert "13 completed, 5 failed, 47 enqueued" in words(site.html("overview?span=24h"))
    assert len(site.get("overview.json?span=7d").json()["flow"]["steps"]) == 84
    wrong = site.get("overview?span=2h")
    assert (wrong.status_code, "give one of 1h, 24h, 7d" in wrong.text) == (422, True)


def test_waits_and_retries_of_the_last_hour_are_told(site: Site) -> None:
    count_up_to_now(site)
    minute(site, 1, waits=counts([(8, 4)]), runs=counts([(2, 9)]), completed_again=3, failed_again=1)
    minute(site, 2, "resync", waits=counts([(11, 4)]))
    forget(site)
    said = words(site.html("overview"))
    assert "Wait before start 2.5 s / 28 s p50 / p95, last hour" in said
    of_role = words(site.html("roles/crawl"))
    assert "3 of 4 that were retried" in of_role
    assert "Wait 1.8 s / 2.4 s / 2.5 s p50 / p95 / p99, last hour" in of_role
    assert "Run time 18 ms / 24 ms / 25 ms p50 / p95 / p99, last hour" in of_role


def test_a_role_has_its_hour_beside_it(site: Site) -> None:
    count_up_to_now(site)
    minute(site, 3, completed=4, failed=2)
    said = site.html("roles")
    assert 'aria-label="the last hour: 4 completed, 2 failed"' in said
    assert "nothing ended" in said.partition('id="role-resync"')[2]


def test_that_nothing_was_counted_for_long_is_said(site: Site) -> None:
    behind = "the sweep minutes , which beat runs, is behind"
    task(site, "completed", "crawl")
    assert behind in words(site.html("overview"))
    count_up_to_now(site)
    forget(site)
    assert behind not in words(site.html("overview"))


def test_what_is_not_known_of_a_role_is_said(site: Site) -> None:
    count_up_to_now(site)
    minute(site, 1, enqueued=None, started=None, completed=9)
    assert "What was enqueued of roles that keep no successes is not known." in words(site.html("roles/crawl"))


def test_a_problem_has_its_trend(site: Site) -> None:
    for ago in (timedelta(minutes=1), timedelta(hours=23, minutes=30)):
        made = task(site, "failed", "crawl")
        site.rows("UPDATE celeriac.history SET completed_at = now() - :ago WHERE id = :id", ago=ago, id=made)
    told = f"over time: {', '.join('1' if n in (0, 23) else '0' for n in range(24))}"
    assert told in site.html("failures")
    (group,) = site.get("failures.json").json()["failures"]["groups"]
    assert told in site.html(f"failures/{group['fingerprint']}")


def test_an_account_has_its_hour(site: Site) -> None:
    for status, n in (("completed", 3), ("failed", 1)):
        for _ in range(n):
            task(site, status, "crawl", account="anna")
    task(site, "completed", "crawl", account="bert")
    site.rows("""UPDATE celeriac.history SET started_at = now(), completed_at = now(),
        scheduled_for = now() - interval '20 seconds', created_at = now() - interval '20 seconds'""")
    hours = site.html("accounts/anna").partition('<h2 id="hours">')[2].partition("</section>")[0]
    assert [words(row) for row in re.findall(r'<tr id="hour-.*?</tr>', hours, re.DOTALL)] == ["anna 3 1 20 s"]
    rows = [words(row) for row in re.findall(r'<tr id="account-.*?</tr>', site.html("accounts"), re.DOTALL)]
    assert rows == [f"{told} – – 1.0 – – ● may run" for told in ("anna 0 0 0 3 1 20 s", "bert 0 0 0 1 0 20 s")]
    assert "Nothing that is kept has ended in the last hour" in site.html("accounts/nobody")


def test_an_account_is_told_role_by_role_with_what_it_holds_and_its_oldest(site: Site) -> None:
    waits = task(site, "pending", "crawl", account="anna", scheduled_for=datetime.now(UTC) - timedelta(hours=2))
    runs = task(site, "running", "resync", account="anna")
    task(site, "failed", "crawl", account="anna")
    task(site, "pending", "crawl", account="bert")
    page = site.html("accounts/anna")
    rows = dict(re.findall(r'<tr id="role-(\w+)">(.*?)</tr>', page, re.DOTALL))
    told = {role: re.sub(r"<[^>]+>", " ", row).split() for role, row in rows.items()}
    assert told["crawl"][:4] == ["crawl", "1", "0", "0"]
    assert told["crawl"][-4:] == ["0", "0", "0", "1"]
    assert told["resync"][-4:] == ["0", "1", "0", "0"]
    assert f'id="held-{runs}"' in page
    assert page.count('id="held-') == page.count('id="oldest-') == 1
    assert f'id="oldest-{waits}"' in page
    nobody = site.html("accounts/nobody")
    for empty in ("It has nothing of any role", "It holds nothing", "None of its tasks is due"):
        assert empty in nobody
