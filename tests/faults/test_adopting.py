"""A plain Celery app sends while workers are killed: each call is one task, which runs; the rest are dead letters."""

from __future__ import annotations

import base64
import itertools
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from celeriac.dispatch.keys import adopting_key, plain_keys
from tests import processes
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.shop import RAN
from tests.end_to_end.test_faults import all_done, overlaps
from tests.faults import till
from tests.processes import ROOT, Rows, Running, until

#: Workers at a time, and how often (seconds) one of them is killed, the oldest first.
WORKERS, KILL_EVERY = 3, 1.0

#: Messages a second: as few as it takes for kills to meet them on their way.
PACE = 50


@pytest.fixture
def rows(database_url: str) -> Iterator[Rows]:
    rows = Rows(database_url)
    rows(RAN)
    yield rows
    rows.close()


@pytest.fixture
def start(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Callable[[], Running]]:
    """Starts a worker and does not wait for it."""
    environ = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT), **QUICK}
    command = [sys.executable, "-m", "celery", "-A", "tests.faults.till", "worker", "-l", "INFO", "-c", "2",
        "--without-mingle", "--without-gossip"]  # fmt: skip
    with ExitStack() as stack:
        yield lambda: stack.enter_context(processes.process(command, environ, tmp_path / "log"))


class Killer(threading.Thread):
    """Keeps some workers, and kills the oldest of them every second until it is told to stop."""

    def __init__(self, start: Callable[[], Running]) -> None:
        super().__init__(daemon=True)
        self.begin = start
        self.workers = [start() for _ in range(WORKERS)]
        self.killed = 0
        self.enough = threading.Event()

    def run(self) -> None:
        while not self.enough.wait(KILL_EVERY):
            self.workers.pop(0).kill()
            self.killed += 1
            self.workers.append(self.begin())


def send(plain: Celery, client: redis.Redis, n: int) -> int:
    """So many calls in all of Celery's ways, and among them what is none; how many of those."""
    none: Iterator[Callable[[int], Any]] = itertools.cycle([
        lambda i: client.lpush("charge", f"message {i}"),
        lambda i: plain.send_task("no.such.task", (i,)),
        lambda i: plain.send_task("charge", (i,), serializer="pickle", queue="charge"),
        lambda i: plain.send_task("charge", (i,), {"colour": "red"}),
    ])  # fmt: skip
    ways = itertools.cycle([{}, {"queue": "charge"}, {"priority": 3}, {"queue": "charge", "priority": 9}])
    began = time.monotonic()
    for i in range(n):
        plain.conf.task_protocol = 1 + i % 2
        plain.send_task("charge", (i,), task_id=f"call-{i}", **next(ways))
        if i % 10 == 0:
            next(none)(i)
        time.sleep(max(0.0, began + i / PACE - time.monotonic()))
    return len(range(0, n, 10))


@pytest.mark.timeout(300)
def test_no_message_is_lost_or_run_twice_at_once_while_workers_are_killed(
    start: Callable[[], Running], plain: Celery, rows: Rows, redis_url: str, sized: Callable[[int, int], int]
) -> None:
    n, client = sized(1000, 100), redis.Redis.from_url(redis_url)
    killer = Killer(start)
    killer.start()
    none = send(plain, client, n)
    killer.enough.set()
    killer.join()
    until(all_done(rows, n), "each call to be completed", patience=120)
    assert killer.killed >= n / PACE / 2  # a busy machine starts the next one late
    assert {task for (task,) in rows("SELECT task_id FROM worker_tasks")} == {f"call-{i}" for i in range(n)}
    assert overlaps(rows) == []
    assert rows.one("SELECT count(DISTINCT task_id) FROM ran WHERE what = 'end'") == n
    until(lambda: rows.one("SELECT count(*) FROM dead_letters") == none, "the rest to be dead letters")
    for queue in ("charge", "celery"):
        assert client.exists(adopting_key(queue), *plain_keys(queue)) == 0
    client.close()


@pytest.mark.timeout(300)
def test_adopters_that_are_killed_on_the_way_lose_nothing_and_double_nothing(
    plain: Celery, rows: Rows, database_url: str, redis_url: str, sized: Callable[[int, int], int]
) -> None:
    """Two at a time, of which one is killed within each quarter of a second, whatever it does just then."""
    client, sent = redis.Redis.from_url(redis_url), 0
    adopters = [adopter(database_url, redis_url) for _ in range(2)]
    for _ in range(sized(150, 6)):
        with client.pipeline() as pipe:
            for message in itertools.islice(calls(plain, client, sent), BURST):
                pipe.lpush("charge", message)
            pipe.execute()
        sent += BURST
        time.sleep(random.uniform(0.05, 0.25))
        killed = adopters.pop(0)
        killed.kill()
        killed.join()
        adopters.append(adopter(database_url, redis_url))
    until(lambda: not client.exists("charge", adopting_key("charge")), "all to be adopted")
    for one in adopters:
        one.kill()
        one.join()
    assert rows("SELECT count(*), count(DISTINCT kwargs ->> 'n') FROM celeriac.tasks") == [(sent, sent)]
    assert rows.one("SELECT count(*) FROM celeriac.adopted") == sent
    assert rows("SELECT FROM dead_letters") == []
    client.close()


#: Messages a kill: several batches.
BURST = 200


def adopter(database_url: str, redis_url: str) -> Any:
    process = get_context("forkserver").Process(target=till.adopt, args=(database_url, redis_url))
    process.start()
    return process


def calls(plain: Celery, client: redis.Redis, first: int) -> Iterator[str]:
    """Messages as the plain app sends them, at less cost."""
    plain.send_task("charge", queue="pattern")
    pattern = json.loads(str(client.rpop("pattern"), "utf-8"))  # type: ignore[call-overload]
    for n in itertools.count(first):
        body = base64.b64encode(json.dumps([[n], {}, {}]).encode()).decode()
        yield json.dumps(pattern | {"body": body, "headers": pattern["headers"] | {"id": f"call-{n}"}})
