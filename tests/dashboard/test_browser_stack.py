"""The dashboard in a real browser, beside real workers and servers that come and go."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from click.testing import CliRunner
from playwright.sync_api import Browser, BrowserContext, Page, expect

from celeriac import Celeriac, Settings
from celeriac.cli import within_celery
from celeriac.operate import policies
from celeriac.repair import sweep
from tests import processes
from tests.api.server import UNLIMITED, Api, free_port, is_ready
from tests.dashboard import waiting
from tests.end_to_end.conftest import QUICK
from tests.processes import ROOT, Rows, Running, process, until

MODULE = "tests.dashboard.waiting"

SHORT_OF_MEMORY = {"CELERIAC_MEMORY_LIMIT_MB": "50", "CPU_BACKOFF_THRESHOLD": "1"}

#: Milliseconds a page may take to show what a worker did: a look, two polls and a busy machine.
SOON = 15_000


class Stack:
    """Servers and workers of `waiting`, on a database of their own; they end with the test."""

    def __init__(self, database_url: str, redis_url: str, folder: Path) -> None:
        self.database_url, self.redis_url, self.folder = database_url, redis_url, folder
        self.app: Celeriac = waiting.app
        for name in ("database", "publisher", "enqueuer", "by_name", "limited", "tally"):
            self.app.__dict__.pop(name, None)
        self.app.settings = Settings.from_environ({**QUICK, "DATABASE_URL": database_url, "REDIS_URL": redis_url})
        self.app.conf.broker_url = redis_url
        self.app.register_roles()
        self.rows = Rows(database_url)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.ends = ExitStack()
        self.ends.callback(self.app.database.dispose)
        self.ends.callback(self.app.publisher.close)
        self.ends.callback(self.rows.close)
        self.api = Api(self.url, database_url)
        self.ends.callback(self.api.close)

    def serve(self) -> Running:
        """`celeriac serve`, always at the same address."""
        given = {"DATABASE_URL": self.database_url, "REDIS_URL": self.redis_url, "PYTHONPATH": str(ROOT), **UNLIMITED}
        main = "from celeriac.cli import main; main()"
        command = [sys.executable, "-c", main, "-A", MODULE, "serve", "--port", str(self.port)]
        running = self.ends.enter_context(process(command, given, self.folder / "server"))
        until(lambda: running.process.poll() is not None or is_ready(self.api), "the server to be ready")
        return running

    def worker(self, *queues: str, **environ: str) -> Running:
        log = self.folder / f"worker {' '.join(queues)}"
        arguments = ("-c", "1", "-Q", ",".join(queues), "-n", f"{queues[0]}@%h")
        return self.ends.enter_context(
            processes.worker(MODULE, self.database_url, self.redis_url, log, *arguments, environ=QUICK | environ)
        )

    def do(self, act: Callable[..., Any], *given: Any, **more: Any) -> None:
        with self.app.database.transaction() as connection:
            act(connection, *given, **more, by="ann")

    def status(self, task: int) -> object:
        return self.rows.one("SELECT status FROM worker_tasks WHERE id = :id", id=task)


@pytest.fixture
def stack(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(database_url, redis_url, tmp_path)
    with stack.ends:
        yield stack


@pytest.fixture
def context(stack: Stack, browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context(base_url=f"{stack.url}/admin/") as context:
        context.add_cookies([{"name": "celeriac", "value": stack.api.tokens["admin"], "url": stack.url}])
        yield context


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


def told(stack: Stack, page: Page, task: int) -> str:
    """Why it waits: in one word, which page, API, command line and app have alike."""
    why = stack.app.why(task)
    (no,) = [check for check in why.checks if check.outcome == "no"]
    answer = stack.api.get(f"/api/tasks/{task}/why")
    line = CliRunner().invoke(within_celery, ["why", str(task), "--json"], obj=SimpleNamespace(app=stack.app))
    assert [answer["reason"], json.loads(line.stdout)["reason"]] == [why.reason] * 2
    page.goto(f"tasks/{task}")
    expect(page.locator(".checks .no")).to_have_count(1)
    expect(page.locator(f"#check-{no.name}")).to_have_class("no")
    return why.reason


def test_why_a_task_waits_is_said_alike_everywhere_and_cured_it_runs(stack: Stack, context: BrowserContext) -> None:
    stack.serve()
    page = context.new_page()
    tasks = {name: task for name, task in stack.app.tasks.items() if not name.startswith(("cel", "_"))}
    plain = tasks["plain"]
    expected: dict[str, int] = {}

    expected["no_worker"] = plain.delay().row_id
    assert told(stack, page, expected["no_worker"]) == "no_worker"
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
    found = {told(stack, page, task): task for name, task in expected.items() if name != "no_worker"}
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
