"""What celery-exporter reads of a worker is as on stock Celery, but for the queues' lengths and what has been sent.

The reads are those of danihodovic/celery-exporter, src/exporter.py.
"""

from __future__ import annotations

import re
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import redis
from celery.utils import nodesplit

from tests.end_to_end.listener import Listener, listening
from tests.processes import Running, until

Worker = Callable[..., Running]

HERE = socket.gethostname()


@pytest.fixture
def listener(redis_url: str) -> Iterator[Listener]:
    with listening(redis_url) as listener:
        yield listener


class Exporter:
    """Has its figures, by names and labels as it has them but for that of the host."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener

    def scraped(self) -> dict[str, dict[str, int]]:
        """What it asks whenever Prometheus asks it: the workers for their queues, and Redis for the queues' lengths."""
        app = self.listener.app
        queues: dict[str, dict[str, int]] = defaultdict(lambda: {"workers": 0, "processes": 0})
        with app.connection() as connection:
            assert connection.info()["transport"] == "redis"
            processes = {
                worker: len(stats["pool"].get("processes", []))
                for worker, stats in (app.control.inspect().stats() or {}).items()
            }
            for worker, consumed in (app.control.inspect().active_queues() or {}).items():
                for queue in consumed:
                    queues[queue["name"]]["workers"] += 1
                    queues[queue["name"]]["processes"] += processes[worker]
            for name, figures in queues.items():
                figures["length"] = connection.default_channel.client.llen(name)
        return dict(queues)

    def counted(self) -> Counter[tuple[str, ...]]:
        """What it counts of events: their type, the task's name and queue, and the exception's class."""
        counts: Counter[tuple[str, ...]] = Counter()
        for event in list(self.listener.heard):
            if not event["type"].startswith("task-"):
                continue
            task = self.listener.state.tasks[event["uuid"]]
            assert nodesplit(task.hostname)[1] == HERE
            name = event["type"], task.name, getattr(task, "queue", "celery")
            failed = re.match(r"^(\w+)\(", task.exception or "") if event["type"] == "task-failed" else None
            counts[(*name, failed[1]) if failed else name] += 1
        return counts

    def workers(self) -> dict[str, list[Any]]:
        """Of each host: whether it is up, and how many tasks are active there, by the last heartbeat."""
        known = self.listener.state.workers.values()
        return {nodesplit(worker.hostname)[1]: [worker.alive, worker.active] for worker in known}

    def heard(self, kind: str) -> bool:
        return any(event["type"] == kind and nodesplit(event["hostname"])[1] == HERE for event in self.listener.heard)


def test_its_figures_are_those_of_stock(shop: ModuleType, worker: Worker, listener: Listener, redis_url: str) -> None:
    exporter = Exporter(listener)
    running = worker("-c", "2", "-E", "-Q", "add,permanent,flaky,slow")
    until(lambda: exporter.heard("worker-online"), "the worker to be up")
    with redis.Redis.from_url(redis_url) as client:
        until(lambda: client.get("celeriac:herald:upto"), "the herald's first look")
    for figures in (queues := exporter.scraped()).values():
        assert figures == {"workers": 1, "processes": 2, "length": 0}
    assert set(queues) == {"add", "permanent", "flaky", "slow"}
    good, late = shop.add.delay(1), shop.add.apply_async((1,), countdown=1000)
    late.revoke()
    shop.permanent.delay()
    shop.flaky.delay(1)
    long = shop.slow.delay(60.0)
    counts = Counter({
        ("task-received", "add", "celery"): 1, ("task-started", "add", "celery"): 1,
        ("task-succeeded", "add", "celery"): 1, ("task-revoked", "add", "celery"): 1,
        ("task-received", "permanent", "celery"): 1, ("task-started", "permanent", "celery"): 1,
        ("task-failed", "permanent", "celery", "Permanent"): 1,
        ("task-received", "flaky", "celery"): 2, ("task-started", "flaky", "celery"): 2,
        ("task-retried", "flaky", "celery"): 1, ("task-succeeded", "flaky", "celery"): 1,
        ("task-received", "slow", "celery"): 1, ("task-started", "slow", "celery"): 1,
    })  # fmt: skip
    until(lambda: exporter.counted() == counts, "all to be counted")
    assert 0 < listener.state.tasks[good.id].runtime < 5
    until(lambda: exporter.workers() == {HERE: [True, 1]}, "the one that runs to be active")
    long.revoke(terminate=True)
    counts["task-revoked", "slow", "celery"] = 1
    until(lambda: exporter.counted() == counts, "what was running to be counted as revoked")
    until(lambda: exporter.workers() == {HERE: [True, 0]}, "none to be active")
    running.stop()
    until(lambda: exporter.heard("worker-offline"), "the worker to be down")
