"""A worker in a thread, as `celery.contrib.testing` starts one: it runs tasks, and nothing of it outlives it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import bootsteps
from celery.contrib.testing.app import setup_default_app
from celery.contrib.testing.worker import start_worker
from kombu import Connection, Consumer, Exchange, Producer, Queue

from celeriac import Celeriac
from celeriac.run import shared
from tests.processes import Rows, until

# Celery warns whoever starts a worker as root, as containers do.
pytestmark = pytest.mark.filterwarnings("ignore::celery.platforms.SecurityWarning")

#: Of a worker, and no longer; kicks and the watch are the process's.
THREADS = {f"celeriac-{name}" for name in ("adopter", "governor", "herald", "lifeline", "repairs", "watchdog")}


@pytest.fixture(autouse=True)
def logs() -> Iterator[None]:
    """Whoever starts a worker sets up logging, for the whole process."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
def app(app: Celeriac) -> Iterator[Celeriac]:
    import celery.contrib.testing.tasks  # noqa: F401 - celery.ping

    with setup_default_app(app):
        yield app


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()} & THREADS


def test_it_answers_a_ping_and_runs_what_is_declared_after_its_start(app: Celeriac) -> None:
    with start_worker(app, perform_ping_check=True):

        @app.task
        def add(x: int, y: int) -> int:
            return x + y

        assert add.delay(1, 2).get(timeout=30) == 3
        assert threads() == THREADS


def test_nothing_of_it_outlives_it_and_the_next_one_starts(app: Celeriac, rows: Rows) -> None:
    for _ in range(2):
        with start_worker(app):
            shared.back_off()  # as on a machine that is busy just then
        assert threads() == set()
        assert not shared.closed()
        assert shared.limits_as_of() == 0
    assert rows("SELECT DISTINCT status FROM workers") == [("stopped",)]


NOTES = Queue("notes", Exchange("notes"), routing_key="notes")


def test_a_users_own_consumer_gets_what_is_sent_to_its_queue(app: Celeriac, redis_url: str) -> None:
    got: list[Any] = []

    def receive(body: Any, message: Any) -> None:
        got.append(body)
        message.ack()

    class Step(bootsteps.ConsumerStep):  # type: ignore[misc]
        def get_consumers(self, channel: Any) -> list[Consumer]:
            return [Consumer(channel, queues=[NOTES], callbacks=[receive])]

    def send(connection: Connection, body: Any) -> None:
        Producer(connection).publish(body, exchange=NOTES.exchange, routing_key="notes", declare=[NOTES])

    app.steps["consumer"].add(Step)
    with start_worker(app, perform_ping_check=False), redis.Redis.from_url(redis_url) as client:
        client.lpush("notes", b"no message of kombu's")
        with app.producer_or_acquire() as producer:
            producer.publish({"by": "pool"}, exchange=NOTES.exchange, routing_key="notes", declare=[NOTES])
        with app.connection_for_write() as connection:
            send(connection, {"by": "app"})
        with Connection(redis_url) as connection:
            send(connection, {"by": "kombu"})
        until(lambda: len(got) == 3, "the notes")
    assert sorted(one["by"] for one in got) == ["app", "kombu", "pool"]
    assert not shared.closed()
