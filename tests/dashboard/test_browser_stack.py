"""The dashboard in a real browser, beside real workers and servers that come and go."""

from __future__ import annotations

import re
from collections.abc import Callable

import redis
from playwright.sync_api import BrowserContext, Page, Route, expect

from celeriac.operate import policies
from celeriac.repair import sweep
from tests.dashboard import waiting
from tests.dashboard.asked import why
from tests.dashboard.stack import SOON, Stack
from tests.processes import until

SHORT_OF_MEMORY = {"CELERIAC_MEMORY_LIMIT_MB": "50", "CPU_BACKOFF_THRESHOLD": "1"}


def test_a_server_that_is_killed_is_told_as_stale_and_is_live_again_once_it_is_back(
    stack: Stack, context: BrowserContext
) -> None:
    server = stack.serve()
    task = waiting.app.tasks["plain"].delay().row_id
    page = context.new_page()
    page.goto("tasks")
    page.locator(f"#task-{task} input").check()
    page.locator("#q").press_sequentially("state:fai")
    server.kill()
    expect(page.locator("#light")).to_have_text(re.compile("stale .+"), timeout=SOON)
    expect(page.locator(f"#task-{task}")).to_be_visible()
    waiting.app.cancel(stack.rows.one("SELECT task_id FROM worker_tasks"))
    stack.serve()
    page.keyboard.type("led")
    expect(page.locator("#light")).to_have_text("live", timeout=SOON)
    expect(page.locator(f"#task-{task} .state")).to_contain_text("cancelled", timeout=SOON)
    expect(page.locator(f"#task-{task} input")).to_be_checked()
    expect(page.locator("#q")).to_have_value("state:failed")


def test_who_is_not_there_is_looked_for_at_the_same_pace_who_answers_with_errors_is_not(
    stack: Stack, context: BrowserContext
) -> None:
    stack.serve()
    page = context.new_page()
    page.clock.install()
    page.goto("tasks")

    def looks(answer: Callable[[Route], None]) -> int:
        """Within 24 s of the browser's."""
        asked: list[Route] = []
        page.route("**/tasks", lambda route: (asked.append(route), answer(route)))
        for _ in range(24):
            page.clock.run_for(1_000)
            page.evaluate("fetch('static/live.js')")  # the look before it has been answered
        page.unroute("**/tasks")
        return len(asked)

    assert looks(lambda route: route.abort("connectionrefused")) >= 8
    assert looks(lambda route: route.fulfill(status=503)) <= 5


def test_why_a_task_waits_is_said_alike_everywhere_and_cured_it_runs(stack: Stack, context: BrowserContext) -> None:
    stack.serve()
    page = context.new_page()
    tasks = {name: task for name, task in stack.app.tasks.items() if not name.startswith(("cel", "_"))}
    plain = tasks["plain"]
    expected: dict[str, int] = {}

    expected["no_worker"] = plain.delay().row_id
    assert why(stack, page, expected["no_worker"]) == "no_worker"
    stack.worker("plain", "batched", "narrow", CELERIAC_TICKET_GRACE_MS="600000")
    until(lambda: stack.status(expected["no_worker"]) == "completed", "it to run")

    short_of_memory = stack.worker("heavy", CELERIAC_TICKET_GRACE_MS="600000", **SHORT_OF_MEMORY)
    backs_off = "SELECT FROM workers WHERE CAST(resources ->> 'is_backing_off' AS boolean)"
    until(lambda: stack.rows(backs_off), "a worker to say that it backs off")
    holder = plain.using(lock_key="k", account="a").delay(600.0)
    until(lambda: stack.status(holder.row_id) == "running", "somebody to hold a lock, and a slot of an account")
    stack.do(policies.set_account, "a", cap=1)
    stack.do(policies.pause_account, "shut")
    stack.do(policies.pause_role, "paused")
    tasks["narrow"].delay()
    until(lambda: stack.rows("SELECT FROM worker_tasks WHERE role = 'narrow' AND status = 'claimed'"), "a full window")
    tasks["batched"].delay()
    expected |= {
        "lock": plain.using(lock_key="k").delay().row_id,
        "account_cap": plain.using(account="a").delay().row_id,
        "account_paused": plain.using(account="shut").delay().row_id,
        "later": plain.using(countdown=3_600).delay().row_id,
        "role_paused": tasks["paused"].delay().row_id,
        "window_full": tasks["narrow"].delay().row_id,
        "not_its_turn": tasks["batched"].delay().row_id,
        "ticket_lost": tasks["unsent"].delay().row_id,
        "backing_off": tasks["heavy"].delay().row_id,
    }
    expected["no_pass"] = stack.rows.one("SELECT min(id) FROM worker_tasks WHERE role = 'batched'")  # type: ignore[assignment]
    stack.app.dispatch("unsent")
    with redis.Redis.from_url(stack.redis_url) as client:
        client.flushdb()
    until(lambda: stack.app.why(expected["ticket_lost"]).reason == "ticket_lost", "it to be missed")
    found = {why(stack, page, task): task for name, task in expected.items() if name != "no_worker"}
    assert found == {name: task for name, task in expected.items() if name != "no_worker"}

    short_of_memory.stop()
    stack.worker("heavy", "paused", "unsent")
    stack.app.cancel(holder.id)
    stack.do(policies.resume_account, "shut")
    stack.do(policies.resume_role, "paused")
    stack.app.hasten(stack.rows.one("SELECT task_id FROM tasks WHERE id = :id", id=expected["later"]))
    stack.app.kick(["paused", "plain"])
    sweep(stack.app, "lost_tickets")
    for _ in range(2):
        stack.app.dispatch("batched")
    for name, task in expected.items():
        until(lambda task=task: stack.status(task) == "completed", f"{name} to be cured")  # type: ignore[misc]
        page.goto(f"tasks/{task}")
        expect(page.locator(".lede")).to_contain_text("Completed on")


def test_a_beat_that_has_died_is_why_its_roles_tasks_wait(stack: Stack, watched: Page) -> None:
    stack.serve()
    passes = {"CELERIAC_SCHEDULE_BATCHER_MAILED": "@every 1s"}
    beat = stack.beat(**passes)
    ticked = "SELECT FROM beats, batchers WHERE role = 'mailed' AND last_pass IS NOT NULL"
    until(lambda: stack.rows(ticked), "beat to make passes and to say that it lives")
    beat.kill()
    task = stack.app.tasks["mailed"].delay().row_id
    stack.rows("UPDATE beats SET last_tick_at = now() - interval '2 minutes'")
    assert why(stack, watched, task) == "no_pass"
    expect(watched.locator("#check-passes")).to_contain_text("no beat runs, the last ticked 2 min")
    stack.beat("another", **passes)
    stack.worker("mailed")
    until(lambda: stack.status(task) == "completed", "another beat to make its passes")


def test_a_locks_holder_that_has_died_is_why_the_next_one_waits(stack: Stack, watched: Page) -> None:
    stack.serve()
    mortal = stack.app.tasks["mortal"]
    doomed = stack.worker("mortal")
    holder = mortal.using(lock_key="k").delay(600.0).row_id
    until(lambda: stack.status(holder) == "running", "somebody to hold the lock")
    task = mortal.using(lock_key="k").delay().row_id
    doomed.kill()
    until(lambda: "stale: its worker" in stack.app.why(task).headline, "its silence to be noticed")
    assert why(stack, watched, task) == "lock"
    expect(watched.locator("#check-lock")).to_contain_text(re.compile(rf"task {holder} .+; stale: its worker"))
    stack.worker("narrow", "mortal")
    until(lambda: stack.status(task) == "completed", "the lock to be freed")


def test_a_task_that_runs_is_told_to_stop_and_then_is_stopped(stack: Stack, watched: Page) -> None:
    stack.serve()
    stack.worker("plain")
    number = stack.app.tasks["plain"].delay(600.0).row_id
    until(lambda: stack.status(number) == "running", "it to run")
    watched.goto(f"tasks/{number}")
    watched.get_by_text("Cancel…").click()
    watched.get_by_role("button", name=f"Cancel task {number}").click()
    expect(watched.locator(".told")).to_have_text("It was told to stop.")
    expect(watched.locator(".lede")).to_contain_text("cancelled", timeout=SOON)
