"""Roles, locks, schedules and workers: who gets how much, who has what, and why a task waits."""

from __future__ import annotations

import html
import re
from datetime import datetime, timedelta
from itertools import pairwise

import httpx
import pytest

from celeriac.dashboard import locks
from tests.api.works import task
from tests.dashboard.site import Site, worker
from tests.postgres.finished import live_worker


def test_a_lock_says_who_has_it_and_who_stands_behind(site: Site) -> None:
    running = task(site, "running", "crawl", lock_key="store:7")
    behind = [task(site, "pending", "crawl", lock_key="store:7") for _ in range(2)]
    said = site.html("locks/store:7")
    assert f"#{running}</a> of crawl has it" in said
    assert [int(n) for n in re.findall(r'id="behind-(\d+)"', said)] == behind
    assert 'id="lock-store:7"' in site.html("locks")


def test_unique_keys_are_listed_with_the_task_that_has_each(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No unfinished task has a unique key" in site.html("unique-keys")
    monkeypatch.setattr(locks, "ROWS", 2)
    made = [task(site, "pending", "crawl", unique_key=f"store:{n}") for n in range(3)]
    running = task(site, "running", "resync", unique_key="store:9")
    text = site.html("unique-keys")
    assert [f'id="unique-{n}"' in text for n in (*made, running)] == [True, True, False, False]
    following = html.unescape(re.findall(r'rel="next" href="([^"]+)"', text)[0])
    text = site.html(f"unique-keys{following}")
    assert [f'id="unique-{n}"' in text for n in (*made, running)] == [False, False, True, True]
    assert "▶</span> running" in text
    assert [one["unique_key"] for one in site.get("unique-keys.json?role=resync").json()["keys"]] == ["store:9"]
    assert "No unfinished task of other" in site.html("unique-keys?role=other")
    assert f'id="unique-{made[0]}"' in site.html("unique-keys?after=nonsense")


def test_a_role_says_who_gets_how_much(site: Site) -> None:
    for account, n in (("a", 3), ("b", 1)):
        for _ in range(n):
            task(site, "pending", "crawl", account=account)
    for path, row in (("roles/crawl", "share-a"), ("accounts", "account-a")):
        said = site.html(path)
        assert f'id="{row}"' in said
        assert "a lacks most: it holds 0, 3.0 would be fair" in said
    site.rows("INSERT INTO celeriac.batchers (role, cursor) VALUES ('crawl', 'a')")
    site.rows("""INSERT INTO celeriac.passes (role, by, free, claimants, given)
        VALUES ('crawl', 'w', 1, '[{"account": "a", "waiting": 3}, {"account": "b", "waiting": 1}]', '{"a": 1}')""")
    said = site.html("roles/crawl")
    assert "The next pass begins after a." in said
    waited = {account: re.findall(rf'<tr id="share-{account}">.*?</tr>', said, re.DOTALL)[0] for account in "ab"}
    assert ['<td class="figure">1</td><td><time' in waited[account] for account in "ba"] == [True, False]


def test_a_role_says_why_its_tasks_wait_and_when_the_next_pass_takes_some(site: Site) -> None:
    task(site, "pending", "resync")
    task(site, "pending", "resync", lock_key="k", waits_for="lock")
    assert "no worker listens on the queue" in site.html("roles/resync")
    live_worker(site.rows, queues='["resync"]')
    text = site.html("roles/resync")
    assert "next in line: a pass, at <time" in text
    assert 'href="../tasks?state=pending&amp;role=resync&amp;waits=lock">1</a></dt><dd>behind a lock' in text
    site.rows("UPDATE celeriac.roles SET paused = true WHERE role = 'resync'")
    assert 'waits=nothing">1</a></dt><dd>its role is paused</dd>' in site.html("roles/resync")


def test_a_waiting_task_says_why_and_what_was_not_asked_yet(site: Site) -> None:
    waiting = task(site, "pending", "crawl", account="anna")
    site.told("pause-account/anna", why="unpaid")
    said = site.html(f"tasks/{waiting}")
    assert "Its account is paused" in said.partition('<p class="lede">')[2].partition("</p>")[0]
    checks = dict(re.findall(r'<li id="check-(\w+)" class="([\w-]+)"', said))
    assert (checks["due"], checks["role"], checks["account"], checks["lock"]) == ("yes", "yes", "no", "not-asked")
    same = httpx.get(
        f"http://{site.host}/api/tasks/{waiting}/why", headers={"Authorization": f"Bearer {site.tokens['read']}"}
    ).json()
    assert same["headline"] == site.get(f"tasks/{waiting}.json").json()["why"]["headline"]


def test_a_schedule_says_when_it_fires_next_on_its_own_clocks(site: Site) -> None:
    site.rows("""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, timezone)
        VALUES ('nightly', 'crawl', '30 3 * * *', 'Asia/Kolkata')""")
    following = [datetime.fromisoformat(at) for at in site.get("schedules/nightly.json").json()["following"]]
    assert len(following) == 5
    assert {at.strftime("%H:%M %z") for at in following} == {"03:30 +0530"}
    assert {after - before for before, after in pairwise(following)} == {timedelta(days=1)}
    for path in ("schedules/nightly", "schedules"):
        assert "at 03:30 every day" in site.html(path)
    assert site.html("schedules/nightly").count(" 03:30:00<") == 5


def test_a_role_says_since_when_it_is_idle_and_what_another_release_declares(site: Site) -> None:
    site.rows("""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, next_run_at)
        VALUES ('nightly', 'resync', '@daily', now() + interval '3 hours')""")
    task(site, "completed", "resync")
    site.rows("""UPDATE celeriac.roles SET otherwise = jsonb_build_object('release', 6, 'at', now(),
        'definition', definition || '{"window": 77}') WHERE role = 'resync'""")
    said = site.html("roles/resync")
    idle = said.partition('<p id="idle">')[2].partition("</p>")[0]
    assert "Idle since" in idle
    assert re.search(r'schedules/nightly">nightly</a> makes its next task at', idle)
    row = said.partition('<tr id="option-window">')[2].partition("</tr>")[0]
    assert "<b>77</b>" in row
    assert "The code of release 6 declared it otherwise" in said
    assert "none that was retried has ended" in said


def test_a_fleet_that_is_gone_is_an_error_and_no_empty_list(site: Site) -> None:
    worker(site, "a", ago=300)
    worker(site, "b", ago=3_600)
    assert "✕ All workers are gone since" in site.html("workers")
    worker(site, "c", version="0.1.0")
    said = site.html("workers")
    assert "All workers are gone" not in said
    assert "pid 12, 0.1.0</span>" in said
