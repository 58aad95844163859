"""Flower itself, over HTTP: what it shows is what SQL says, and its Revoke button cancels."""

from __future__ import annotations

import json
import re
import socket
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from html import unescape
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import redis
from playwright.sync_api import Locator, Page, expect, sync_playwright

from tasks.chromium import FLAGS
from tests.conftest import Servers, Stock
from tests.end_to_end.conftest import QUICK, shop_on
from tests.end_to_end.shop import RAN
from tests.matrix.pooled import through
from tests.processes import ROOT, Rows, Running, process, until
from tests.processes import worker as worker_process
from tests.renewed import Renewed

Worker = Callable[..., Running]

#: Flower's word for each of ours.
STATE = {"completed": "SUCCESS", "failed": "FAILURE", "cancelled": "REVOKED"}


class Flower:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return str(answer.read().decode())

    def post(self, path: str) -> Any:
        with urllib.request.urlopen(urllib.request.Request(self.url + path, method="POST"), timeout=10) as answer:
            return json.load(answer)

    def tasks(self) -> dict[str, dict[str, Any]]:
        return dict(json.loads(self.get("/api/tasks?limit=1000")))

    def is_up(self) -> bool:
        try:
            return bool(self.get("/healthcheck"))
        except OSError:
            return False

    def node(self) -> str:
        """
        The worker it knows. Who asks while Flower's first question to all workers is still open is given the answers
        to that one, and a worker that was not ready then is not among them.
        """
        until(lambda: json.loads(self.get("/api/workers?refresh=1")), "Flower to know a worker")
        return str(next(iter(json.loads(self.get("/api/workers")))))

    def metrics(self, name: str) -> dict[str, float]:
        """Of one of Flower's metrics, the sum by its label `task` and `type`."""
        found: dict[str, float] = {}
        for labels, value in re.findall(rf"^{name}{{(.*?)}} (\S+)$", self.get("/metrics"), re.MULTILINE):
            given = dict(re.findall(r'(\w+)="(.*?)"', labels))
            key = f"{given.get('task', '')} {given.get('type', '')}".strip()
            found[key] = found.get(key, 0) + float(value)
        return found


@pytest.fixture
def flower(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Flower]:
    with flower_on(database_url, redis_url, tmp_path) as flower:
        yield flower


@contextmanager
def flower_on(database_url: str, redis_url: str, folder: Path) -> Iterator[Flower]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = {
        "DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT),
        "FLOWER_UNAUTHENTICATED_API": "true",
    }  # fmt: skip
    command = [sys.executable, "-m", "celery", "-A", "tests.end_to_end.shop", "flower", f"--port={port}",
               "--address=127.0.0.1"]  # fmt: skip
    with process(command, given, folder / "flower.log"):
        flower = Flower(port)
        until(flower.is_up, "Flower")
        yield flower


def test_flowers_revoke_button_cancels(shop: ModuleType, worker: Worker, rows: Rows, flower: Flower) -> None:
    worker("-c", "1", "-Q", "slow", "-E")
    running, planned = shop.slow.delay(30.0), shop.slow.apply_async((1.0,), countdown=1000)
    until(lambda: flower.tasks().get(running.id, {}).get("state") == "STARTED", "Flower to hear of the one that runs")
    flower.post(f"/api/task/revoke/{planned.id}")
    assert rows.one("SELECT status FROM worker_tasks WHERE task_id = :id", id=planned.id) == "cancelled"
    flower.post(f"/api/task/revoke/{running.id}")
    assert rows.one("SELECT cancel_requested_at IS NULL FROM tasks") is True
    flower.post(f"/api/task/revoke/{running.id}?terminate=1")
    until(lambda: rows.one("SELECT status FROM worker_tasks WHERE task_id = :id", id=running.id) == "cancelled", "it")
    until(lambda: flower.tasks()[running.id]["state"] == "REVOKED", "Flower to hear of it")
    node = urllib.parse.quote(flower.node())
    limited = flower.post(f"/api/task/rate-limit/slow?workername={node}&ratelimit=7/m")
    assert limited == {"message": "slow: rate_limit=7/m, timeout=300.0"}
    timed = flower.post(f"/api/task/timeout/slow?workername={node}&soft=20&hard=30")
    assert timed == {"message": "slow: rate_limit=7/m, timeout=20.0, hard_timeout=30.0"}
    with pytest.raises(urllib.error.HTTPError) as refused:
        flower.post(f"/api/task/rate-limit/slow?workername={node}&ratelimit=often")
    assert (refused.value.code, b"often" in refused.value.read()) == (403, True)
    request = urllib.request.Request(
        f"{flower.url}/api/task/async-apply/slow", data=b'{"args": [1], "foo": 2}', method="POST"
    )
    with pytest.raises(urllib.error.HTTPError, match="500"):
        urllib.request.urlopen(request, timeout=10)
    assert rows.one("SELECT count(*) FROM worker_tasks") == 2, "what no call has is refused, and its log says why"


@pytest.fixture
def page(chromium: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", *FLAGS])
        yield browser.new_page(viewport={"width": 1600, "height": 1000})
        browser.close()


def cells(page: Page, row: Locator) -> dict[str, str]:
    """What a table's row says under each heading that is shown."""
    names = [name.strip() for name in page.locator("thead th").all_text_contents()]
    return dict(zip(names, (text.strip() for text in row.locator("td").all_text_contents()), strict=False))


class Fifty(NamedTuple):
    """50 tasks that ended, of which 3 failed and 8 were retried, and a Flower that has heard of all."""

    shop: ModuleType
    rows: Rows
    flower: Flower
    good: list[str]
    bad: list[str]
    again: list[str]


@contextmanager
def fifty_on(database_url: str, redis_url: str, folder: Path) -> Iterator[Fifty]:
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    with (
        closing(Rows(database_url)) as rows,
        flower_on(database_url, redis_url, folder) as flower,
        shop_on(database_url, redis_url) as shop,
    ):
        rows(RAN)
        options = ("-c", "2", "-E")
        with worker_process(shop.__name__, database_url, redis_url, folder / "worker.log", *options, environ=QUICK):
            good = [shop.add.delay(n).id for n in range(39)]
            bad = [shop.permanent.delay().id for _ in range(3)]
            again = [shop.flaky.delay(n % 2 + 1).id for n in range(8)]
            until(lambda: rows.one("SELECT count(*) FROM history") == 50, "all to end")
            heard = lambda: sum(task["state"] in STATE.values() for task in flower.tasks().values())  # noqa: E731
            until(lambda: heard() == 50, "Flower to hear of all")
            yield Fifty(shop, rows, flower, good, bad, again)


@pytest.fixture(scope="module")
def shared(servers: Servers, stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Renewed[Fifty]]:
    @contextmanager
    def make() -> Iterator[Fifty]:
        with (
            stock.taken() as clean,
            fifty_on(through(clean.url), servers.redis_url, tmp_path_factory.mktemp("fifty")) as made,
        ):
            yield made

    shared = Renewed(make)
    yield shared
    shared.close()


@pytest.fixture
def fifty(shared: Renewed[Fifty], request: pytest.FixtureRequest) -> Fifty:
    return shared.of(request.node.nodeid)


def test_flower_agrees_with_sql(fifty: Fifty) -> None:
    _, rows, flower, good, bad, again = fifty
    shown = flower.tasks()
    assert {i: t["state"] for i, t in shown.items()} == {
        str(i): STATE[str(s)] for i, s in rows("SELECT task_id, status FROM history")
    }
    assert {i for i, t in shown.items() if t["state"] == "FAILURE"} == set(bad)
    assert {i: t["name"] for i, t in shown.items()} == (
        dict.fromkeys(good, "add") | dict.fromkeys(bad, "permanent") | dict.fromkeys(again, "flaky")
    )
    failed = flower.get(f"/task/{bad[0]}")
    assert "Permanent('no use')" in unescape(failed)
    assert "in permanent" in failed
    assert flower.metrics("flower_events_total") == {
        "add task-received": 39, "add task-started": 39, "add task-succeeded": 39,
        "permanent task-received": 3, "permanent task-started": 3, "permanent task-failed": 3,
        "flaky task-received": 20, "flaky task-started": 20, "flaky task-succeeded": 8, "flaky task-retried": 12,
    } | {k: v for k, v in flower.metrics("flower_events_total").items() if "worker-" in k}  # fmt: skip
    assert flower.metrics("flower_task_runtime_seconds_count") == {"add": 39, "flaky": 8}


def test_what_a_browser_shows_of_flower_is_what_sql_says(fifty: Fifty, page: Page) -> None:
    """The dashboard, the list and a failed task's page; its button cancels. Last: it has two more tasks."""
    shop, rows, flower, _, bad, again = fifty
    page.goto(flower.url)
    dashboard = page.locator("#workers-table tbody tr").first
    figures = {"Status": "Online", "Active": "0", "Processed": "62", "Failed": "3", "Succeeded": "47"}
    until(lambda: figures.items() <= cells(page, dashboard).items(), f"the dashboard's figures, {figures}")

    page.goto(f"{flower.url}/tasks?limit=100")
    expect(page.locator("#tasks-table_info")).to_contain_text("of 50")
    page.locator("select[name=tasks-table_length]").select_option("100")
    listed = page.locator("#tasks-table tbody tr")
    expect(listed).to_have_count(50)
    named = {row["UUID"][:36]: (row["Name"], row["State"]) for row in (cells(page, one) for one in listed.all())}
    assert named == {i: (role, STATE[status]) for i, role, status in rows("SELECT task_id, role, status FROM history")}

    page.goto(f"{flower.url}/task/{bad[0]}")
    said = page.locator("body").inner_text()
    for words in (bad[0], "FAILURE", "Permanent: no use", "Traceback", "permanent"):
        assert words in said
    page.goto(f"{flower.url}/task/{again[0]}")
    assert "SUCCESS" in page.locator("body").inner_text()

    status = "SELECT status FROM worker_tasks WHERE task_id = :id"
    for task, state, button in (
        (shop.slow.delay(30.0), "STARTED", "terminate"),
        (shop.later.delay(), "RETRY", "revoke"),
    ):
        until(lambda: flower.tasks().get(task.id, {}).get("state") == state, f"Flower to hear of {state}")  # noqa: B023
        page.goto(f"{flower.url}/task/{task.id}")
        page.locator(f"#task-{button}").click()
        until(lambda: rows.one(status, id=task.id) == "cancelled", "the cancellation")  # noqa: B023
        until(lambda: flower.tasks()[task.id]["state"] == "REVOKED", "Flower to hear of it")  # noqa: B023
        page.reload()
        assert "REVOKED" in page.locator("body").inner_text()
