"""Workers hear of each other by events, which whoever may write to Redis can forge: none has a worker call a task."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.worker.consumer.gossip import Gossip

from celeriac import Celeriac
from celeriac.worker.panel import ElectionsStep
from tests import processes
from tests.end_to_end.conftest import QUICK
from tests.processes import PATIENCE, ROOT, Rows, Running, until

KEY = "a key that nobody has"

#: What an election would have the worker that wins it call.
ACTION: dict[str, Any] = {
    "task": "add",
    "args": ["forged"],
    "kwargs": {},
    "options": {},
    "subtask_type": None,
    "immutable": False,
}


@pytest.fixture
def gossips(shop: ModuleType, database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Running]:
    """A worker with Celery's gossip, and with a key for remote control."""
    servers = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    environ = {**QUICK, **servers, "CELERIAC_REMOTE_CONTROL_KEY": KEY, "CELERIAC_REMOTE_CONTROL": "look"}
    command = [sys.executable, "-m", "celery", "-A", "tests.end_to_end.shop", "worker", "-l", "INFO", "-c", "1"]
    with processes.process([*command, "-n", "w@here", "--without-mingle"], environ, tmp_path / "worker.log") as running:
        until(lambda: " ready." in running.printed(), "it to be ready")
        yield running


def test_forged_elections_enqueue_nothing(gossips: Running, other: Celery, rows: Rows) -> None:
    until(lambda: other.control.ping(timeout=1, limit=1), "it to hear")
    other.control.election("forged", "task", ACTION)
    forge(other, "worker-elect", "w@here", gossips.pid)
    for name in ("w@here", "v@here"):
        forge(other, "worker-elect-ack", name, gossips.pid)
    for _ in range(4):  # what its own events lead to is in Redis before the next question
        assert other.control.ping(timeout=PATIENCE, limit=1)
    assert rows("SELECT role, args FROM worker_tasks") == []
    assert "election: refused" in gossips.printed()
    assert "won the election" not in gossips.printed()


def forge(app: Celery, kind: str, hostname: str, pid: int) -> None:
    with app.connection_for_write() as connection, app.events.Dispatcher(connection, hostname=hostname) as dispatcher:
        dispatcher.pid = pid
        dispatcher.send(kind, id="forged", topic="task", action=ACTION, cver=1)


def test_who_joins_and_leaves_is_still_reported_to_steps_and_elections_are_not_kept(app: Celeriac) -> None:
    """Steps of users' own require Gossip for that: Celery documents it."""
    consumer: Any = SimpleNamespace(app=app, hostname="w@here", pid=1, timer=None, hub=None, steps=[])
    gossip, joined = Gossip(consumer), list[str]()
    gossip.dispatcher = SimpleNamespace(send=lambda *_, **__: pytest.fail("it answers"))
    ElectionsStep(consumer).include(consumer)
    gossip.on.node_join.add(lambda worker: joined.append(worker.hostname))
    gossip.consensus_replies["forged"] = []
    elect = {"id": "forged", "clock": 1, "hostname": "v@here", "pid": 1, "topic": "task", "action": ACTION, "cver": 1}
    for kind in ("worker.elect", "worker.elect.ack"):
        gossip.on_message(pytest.fail, SimpleNamespace(delivery_info={"routing_key": kind}, payload=elect))
    assert (gossip.consensus_requests, gossip.election_handlers) == ({}, {})
    seen = {"type": "worker-online", "hostname": "v@here", "timestamp": 1.0, "local_received": 1.0, "clock": 1}
    message = SimpleNamespace(delivery_info={"routing_key": "worker.online"}, payload=seen, headers={})
    gossip.on_message(lambda payload: (payload["type"], payload), message)
    assert joined == ["v@here"]
