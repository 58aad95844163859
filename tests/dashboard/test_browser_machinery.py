"""What the pages say of locks, beats and tickets, in a real browser beside real workers and beats that come and go."""

from __future__ import annotations

import re
import signal
from datetime import datetime, timedelta

import redis
from playwright.sync_api import Locator, Page, expect

from tests.dashboard.stack import SOON, Stack
from tests.processes import until


def instant(shown: Locator) -> datetime:
    """Of a time on a page, whose text is an age or a time of day."""
    return datetime.fromisoformat(shown.get_attribute("datetime") or "")


def test_a_lock_says_who_has_it_how_alive_that_is_and_who_is_next_once_its_worker_is_killed(
    stack: Stack, watched: Page
) -> None:
    stack.serve()
    mortal = stack.app.tasks["mortal"]
    doomed = stack.worker("mortal")
    holder = mortal.using(lock_key="store:7").delay(600.0).row_id
    until(lambda: stack.status(holder) == "running", "somebody to hold the lock")
    patient = mortal.using(lock_key="store:7").delay(600.0).row_id
    urgent = mortal.using(lock_key="store:7", priority=5).delay(600.0).row_id

    watched.goto("locks")
    told = [f"#{holder} running", "mortal", "worker-mortal-", "", "", "2", ""]
    expect(watched.locator("tr[id='lock-store:7'] td")).to_contain_text(told)
    watched.get_by_role("link", name="store:7").click()
    lede, behind = watched.locator(".lede"), watched.locator("tbody tr")
    expect(lede).to_contain_text(
        re.compile(rf"Task #{holder} of mortal has it for .+: it is running on worker-mortal-.+, heard")
    )
    assert behind.evaluate_all("rows => rows.map(row => row.id)") == [f"behind-{urgent}", f"behind-{patient}"]
    assert behind.locator("td:first-child").all_inner_texts() == ["1", "2"]

    doomed.kill()
    heard_last = stack.rows.one("SELECT heartbeat_at FROM celeriac.tickets")
    assert isinstance(heard_last, datetime)
    expect(lede).to_contain_text("◌ Its worker fell silent", timeout=SOON)
    off = instant(lede.locator("time").last) - heard_last
    assert abs(off) <= timedelta(seconds=2), "to the second, of what was read at most a second ago"
    expect(lede).to_contain_text(f"Task #{holder} of mortal has it")
    expect(lede).not_to_contain_text("heard in")

    stack.worker("narrow", "mortal")
    expect(lede).to_contain_text(
        re.compile(rf"Task #{urgent} of mortal has it for .+: it is running on worker-"), timeout=SOON
    )
    expect(watched.locator(f"#behind-{patient} td").first).to_have_text("1")
    watched.goto(f"tasks/{holder}")
    (event,) = watched.locator("section:has(> #history) tbody tr").all_inner_texts()
    for part in ("rescue", "running → pending", "its worker fell silent"):
        assert part in event


PULSE = {
    "name": "pulse", "role": "plain", "cron_expression": "@every 1s", "misfire": "skip", "misfire_grace": 1,
    "overlap": "allow",
}  # fmt: skip

NEXT = "SELECT next_run_at FROM celeriac.scheduled_jobs WHERE name = 'pulse'"


def test_a_beat_that_stands_still_is_late_then_an_alert_and_the_reason_of_what_was_missed(
    stack: Stack, watched: Page
) -> None:
    stack.serve(CELERIAC_SWEEP_INTERVAL_MS="200", CELERIAC_ALERT_BEAT_MS="4000")
    number = stack.api.post("/api/admin/scheduled-jobs", PULSE)["id"]
    beat = stack.beat()
    watched.goto("schedules")
    beats, schedule = watched.locator("section:has(> #beats)"), watched.locator(f"#schedule-{number}")
    expect(beats).to_contain_text("1 beat alive", timeout=SOON)
    expect(schedule.locator("td a")).to_have_count(1, timeout=SOON)

    beat.signal_all(signal.SIGSTOP)
    late = schedule.locator("td:nth-child(7) time")
    expect(late).to_have_count(1, timeout=SOON)
    assert instant(late) == stack.rows.one(NEXT), "its age is how late it is"
    assert instant(beats.locator("time").first) == stack.rows.one("SELECT last_tick_at FROM celeriac.beats")
    expect(late).to_have_text(re.compile(r"^(?:[5-9]|\d\d+) s$"), timeout=SOON)
    expect(schedule).to_contain_text("overdue")
    watched.goto("overview")
    alert = watched.locator("#alert-beat_silent-beat")
    expect(alert).to_contain_text("none has ticked for", timeout=SOON)
    expect(watched.locator("h1")).to_contain_text("Beat silent: beat")

    beat.signal_all(signal.SIGCONT)
    expect(alert).to_have_count(0, timeout=SOON)
    expect(watched.locator("#alert-skipped_instants-pulse")).to_be_visible(timeout=SOON)
    watched.goto("schedules/pulse")
    expect(watched.locator("#left-out")).to_contain_text("no beat ticked within 1 s of the instant")


def test_two_beats_make_one_task_of_each_tick(stack: Stack, watched: Page) -> None:
    stack.serve()
    stack.api.post("/api/admin/scheduled-jobs", PULSE | {"misfire": "all"})
    first = stack.rows.one(NEXT)
    beats = [stack.beat(name) for name in ("one", "other")]
    watched.goto("schedules")
    expect(watched.locator("section:has(> #beats)")).to_contain_text("2 beats alive", timeout=SOON)

    def ticks() -> int:
        since = "SELECT CAST(extract(epoch FROM last_run_at - :first) AS integer) + 1 FROM celeriac.scheduled_jobs"
        return int(str(stack.rows.one(f"{since} WHERE name = 'pulse'", first=first) or 0))

    seen = ticks()
    until(lambda: ticks() >= seen + 4, "some ticks while both live")
    for beat in beats:
        beat.stop()
    watched.goto("tasks?role=plain")
    expect(watched.locator("tbody tr")).to_have_count(ticks())


def test_tickets_that_redis_lost_are_counted_and_in_step_again_once_they_were_sent_again_when_it_says(
    stack: Stack, watched: Page
) -> None:
    grace = {"CELERIAC_TICKET_GRACE_MS": "600000"}
    stack.serve(**grace)
    stack.beat(CELERIAC_SCHEDULE_BATCHER_MAILED="@every 1s", **grace)
    mailed = [stack.app.tasks["mailed"].delay().row_id for _ in range(3)]
    watched.goto("system")
    queue, in_step = watched.locator("#queue-mailed td"), ["3", "3", "3", "in step", "–", re.compile(r"^\d+ ")]
    expect(queue).to_have_text(in_step, timeout=SOON)
    claimed = "SELECT array_agg(CAST(token AS text)), min(claimed_at) FROM celeriac.tickets"
    ((lost, since),) = stack.rows(claimed)
    with redis.Redis.from_url(stack.redis_url) as client:
        client.flushdb()
    expect(queue.nth(3)).to_contain_text("SQL ahead by 3", timeout=SOON)
    again_from = instant(queue.nth(4).locator("time"))
    assert again_from == since + timedelta(minutes=10)
    assert stack.rows(claimed) == [(lost, since)], "not before"
    stack.rows("UPDATE celeriac.tickets SET claimed_at = statement_timestamp() - interval '597 seconds'")
    again_from = stack.rows.one("SELECT min(claimed_at) + interval '10 minutes' FROM celeriac.tickets")
    expect(queue).to_have_text(in_step, timeout=SOON)
    ((sent, since),) = stack.rows(claimed)
    assert since >= again_from
    assert not {*lost} & {*sent}
    watched.goto(f"tasks/{mailed[0]}")
    expect(watched.locator("section:has(> #history) tbody tr")).to_contain_text(["ticket lost"])
