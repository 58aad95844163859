"""Redis answers with an error: a worker waits, says so once, and goes on by itself; a publisher is told no."""

from __future__ import annotations

import base64
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import pytest
import redis

from celeriac import local
from celeriac.dispatch.keys import ticket_key
from celeriac.dispatch.publish import Ticket
from tests import processes
from tests.end_to_end.conftest import QUICK
from tests.processes import ROOT, Rows, Running, until

LOST, WAITS, CONNECTED = "Connection to broker lost", "Waiting for Redis at ", "Connected to redis"

#: Where the tickets of the shop's `add` lie.
ADD = ticket_key("add")

#: A master nobody is at: who follows it is read-only.
NOBODY = ("REPLICAOF", "127.0.0.1", "1")
MASTER_AGAIN = ("REPLICAOF", "NO", "ONE")
NO_ROOM, ROOM = (("CONFIG", "SET", "maxmemory", size) for size in ("1", "0"))
ALLOWED = ("ACL", "SETUSER", "default", "+@all")


@pytest.fixture
def client(valkey: local.ValkeyServer) -> Iterator[redis.Redis]:
    """Of a Redis that is empty and well."""
    client = redis.Redis.from_url(valkey.url)
    for command in (MASTER_AGAIN, ROOM, ALLOWED, ("FLUSHALL",)):
        client.execute_command(*command)
    yield client
    client.close()


@pytest.fixture
def redis_url(valkey: local.ValkeyServer, client: redis.Redis) -> str:
    return valkey.url


@pytest.fixture
def worker(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Callable[[], Running]]:
    """Starts workers of the shop that listen to one another."""
    environ = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT), **QUICK}
    command = [sys.executable, "-m", "celery", "-A", "tests.end_to_end.shop", "worker", "-E", "-l", "INFO", "-c", "1"]
    with ExitStack() as stack:

        def start() -> Running:
            running = stack.enter_context(processes.process(command, environ, tmp_path / "log"))
            until(lambda: " ready." in running.printed(), "the worker to be ready")
            return running

        yield start


@pytest.fixture
def running(shop: ModuleType, worker: Callable[[], Running]) -> Iterator[Running]:
    """A worker that has worked; at the end it still works, and never broke."""
    running = worker()
    works(shop)
    yield running
    works(shop)
    assert running.process.poll() is None
    assert "Unrecoverable" not in running.printed()
    assert "Traceback" not in running.printed()


def works(shop: ModuleType) -> None:
    assert shop.add.delay(2, 3).get(timeout=30) == 5


def blocked(client: redis.Redis) -> list[int]:
    """The clients that wait for a ticket."""
    return [int(found["id"]) for found in client.client_list() if found["cmd"] == "brpop" and "b" in found["flags"]]


def times(running: Running, said: str) -> int:
    return running.printed().count(said)


def test_a_client_that_is_unblocked_with_an_error_asks_again(running: Running, client: redis.Redis) -> None:
    (waiting,) = until(lambda: blocked(client), "the worker to wait for tickets")
    assert client.client_unblock(waiting, error=True)
    until(lambda: times(running, CONNECTED) == 2, "it to connect again")
    assert (times(running, LOST), times(running, WAITS)) == (1, 0)


def test_a_failover_is_waited_out_and_told_once(
    shop: ModuleType, running: Running, client: redis.Redis, rows: Rows
) -> None:
    until(lambda: blocked(client), "the worker to wait for tickets")
    client.execute_command(*NOBODY)
    until(lambda: times(running, WAITS), "it to say that it waits")
    tried = pings(client)
    until(lambda: pings(client) > tried + 2, "it to try again")
    task = shop.add.delay(1)
    client.execute_command(*MASTER_AGAIN)
    assert task.get(timeout=30) == 2
    until(lambda: times(running, CONNECTED) == 2, "it to connect again")
    assert (times(running, LOST), times(running, WAITS)) == (1, 1)


def test_a_worker_that_waits_for_redis_ends_when_told_to(worker: Callable[[], Running], client: redis.Redis) -> None:
    running = worker()
    client.execute_command(*NOBODY)
    until(lambda: times(running, WAITS), "it to say that it waits")
    assert running.stop() == 0
    assert "Traceback" not in running.printed()


def pings(client: redis.Redis) -> int:
    """Each connection begins with one."""
    return int(client.info("commandstats")["cmdstat_ping"]["calls"])


def test_a_command_it_may_not_give_is_waited_for_as_well(running: Running, client: redis.Redis) -> None:
    until(lambda: blocked(client), "the worker to wait for tickets")
    client.execute_command("ACL", "SETUSER", "default", "-brpop")
    until(lambda: times(running, LOST) >= 3, "it to have tried")
    assert "Frequent restarts" not in running.printed()
    client.execute_command(*ALLOWED)


def test_a_queue_that_is_none_is_quarantined(running: Running, client: redis.Redis) -> None:
    client.set(ADD, "a string")
    until(lambda: times(running, f"celeriac:quarantine:{ADD}:1"), "it to tell")
    client.sadd(ADD, "a set")
    until(lambda: times(running, f"celeriac:quarantine:{ADD}:2"), "it to tell")
    assert client.get(f"celeriac:quarantine:{ADD}:1") == b"a string"
    assert client.smembers(f"celeriac:quarantine:{ADD}:2") == {b"a set"}
    told = [line for line in running.printed().splitlines() if "celeriac:quarantine" in line]
    assert ["ERROR" in line for line in told] == [True, True]
    assert times(running, LOST) == 0


KEYS = (
    ADD, "_kombu.binding.celery", "_kombu.binding_permanent.celery", "_kombu.binding.celery.pidbox",
    "_kombu.binding_deadlines",
)  # fmt: skip


def test_so_is_what_a_worker_finds_as_it_starts(
    shop: ModuleType, worker: Callable[[], Running], client: redis.Redis
) -> None:
    for key in KEYS:
        client.set(key, "a string")
    started = worker()
    works(shop)
    assert [client.get(f"celeriac:quarantine:{key}:1") for key in KEYS] == [b"a string"] * len(KEYS)
    assert "Traceback" not in started.printed()


def test_a_redis_that_is_full_is_drained(
    shop: ModuleType, worker: Callable[[], Running], client: redis.Redis, rows: Rows
) -> None:
    """Connecting writes down what queues there are; where there is no room for it, tickets are taken all the same."""
    task = shop.add.delay(1)
    until(lambda: client.llen(ADD), "its ticket to lie in Redis")
    client.execute_command(*NO_ROOM)
    running = worker()
    assert task.get(timeout=30) == 2
    client.client_kill_filter(_type="normal", skipme=True)
    until(lambda: times(running, CONNECTED) == 2, "it to connect again")
    assert times(running, "Redis has no room") == 1
    client.execute_command(*ROOM)
    works(shop)
    assert running.process.poll() is None
    assert "Traceback" not in running.printed()


FAULTS = {
    "read-only": (NOBODY, "read only replica"),
    "full": (NO_ROOM, "maxmemory"),
    "of another type": (("SET", ADD, "a string"), "WRONGTYPE"),
    "forbidden": (("ACL", "SETUSER", "default", "-lpush", "-llen", "-lrange"), "permission"),
}


@pytest.mark.parametrize(("fault", "says"), FAULTS.values(), ids=FAULTS)
def test_a_publisher_takes_an_error_for_a_no(
    shop: ModuleType, client: redis.Redis, caplog: pytest.LogCaptureFixture, fault: tuple[str, ...], says: str
) -> None:
    publisher = shop.app.publisher
    tickets = [Ticket("add", "add", [n], "11111111-1111-1111-1111-111111111111") for n in (1, 2)]
    assert publisher.publish(tickets)
    publisher._closed_until = 0.0
    client.delete(ADD)
    client.execute_command(*fault)
    with caplog.at_level(logging.WARNING):
        assert publisher.publish(tickets) is False
    assert re.search(says, caplog.text)
    assert not publisher.is_open
    publisher._closed_until = 0.0
    assert publisher.kick("add", "add", lone=7) is False
    assert shop.add.delay(1).status == "PENDING"


def test_where_no_scripts_may_run_a_kick_asks_for_a_pass(shop: ModuleType, client: redis.Redis) -> None:
    client.execute_command("ACL", "SETUSER", "default", "-evalsha", "-eval", "-script")
    for _ in range(2):
        assert shop.app.publisher.kick("add", "add", lone=7)
        assert shop.app.publisher.is_open
    (ticket,) = client.lrange(ADD, 0, -1)
    assert json.loads(base64.b64decode(json.loads(ticket)["body"]))[0] == ["add", [], ""]
