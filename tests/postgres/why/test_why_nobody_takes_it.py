"""Why a task has not started that could: no worker serves its queue, or is free, and what Redis has lost or hides."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import redis as redis_client

from celeriac import Celeriac, Settings, insights, local
from celeriac.repair import lost_tickets
from celeriac.store.connections import Database
from tests.postgres import stages
from tests.postgres.conftest import new_task
from tests.postgres.why.conftest import World
from tests.postgres.why.test_why import BEAT, SCHEDULE, Put
from tests.processes import Rows


@pytest.fixture
def without_redis(database_url: str) -> Iterator[Celeriac]:
    settings = Settings(database_url=database_url, redis_url="redis://127.0.0.1:9/0")
    app = Celeriac("away", settings=settings, set_as_current=False)
    yield app
    app.close()


def test_no_worker_for_its_queue(app: Celeriac, rows: Rows, put: Put) -> None:
    world, task = World(app, rows), put()
    world.declare()
    assert world.reason(task) == "no_worker"
    assert world.why(task).headline.startswith("no worker listens on the queue 'work'")
    rows(SCHEDULE, on=True)
    rows(BEAT, age=0)
    assert world.reason(task) == "no_worker", "beat's pass would claim it, and nobody take it"
    assert world.claims(task)
    assert world.reason(task) == "no_worker"
    world.serve("gone", age=600)
    assert world.why(task).headline.endswith("gone was heard last, 10 min ago")
    world.serve("parting", status="draining")
    assert world.why(task).headline.endswith("parting ends")
    world.serve()
    assert world.reason(task) == "in_queue"


def test_a_worker_that_has_free_processes_and_does_not_take_it(world: World, put: Put, rows: Rows) -> None:
    """Killed just now: for two minutes its heartbeat is young enough."""
    task = put()
    assert world.claims(task)
    assert world.check(task, "worker").outcome == "yes"
    rows("UPDATE tickets SET claimed_at = now() - interval '70 s'")
    rows("UPDATE workers SET last_heartbeat_at = now() - interval '75 s'")
    assert world.reason(task) == "in_queue"
    assert world.check(task, "worker").outcome == "unknown"
    assert world.why(task).headline.endswith(
        "w-1 (heard 1 min 15 s ago) takes from the queue 'work'; 2 of 2 slots are free, and none has taken it for "
        "1 min 10 s: it may be gone"
    )


def test_workers_that_back_off(world: World, put: Put, rows: Rows) -> None:
    rows("DELETE FROM workers")
    world.serve(is_backing_off=True, backoff_reason="Memory at 87.3 %")
    task = put()
    assert world.reason(task) == "backing_off"
    assert "w-1 backs off and takes nothing: Memory at 87.3 %" in world.why(task).headline
    assert world.claims(task)
    assert world.reason(task) == "backing_off"
    rows("UPDATE workers SET resources = '{}'")
    assert world.reason(task) == "in_queue"


def test_a_ticket_that_redis_has_lost(world: World, put: Put, redis_url: str, rows: Rows) -> None:
    task = put()
    assert world.claims(task)
    assert world.reason(task) == "in_queue"
    assert world.check(task, "ticket").facts["in_queue"] == 1
    redis_client.Redis.from_url(redis_url).flushdb()
    assert world.reason(task) == "taken", "for a moment it may be on its way"
    rows("UPDATE tickets SET claimed_at = now() - interval '5 s'")
    assert world.reason(task) == "ticket_lost"
    assert "it is freed in 55 s" in world.why(task).headline
    rows("UPDATE workers SET status = 'stopped'")
    assert world.why(task).headline.endswith("a beat or a worker frees it, and none is here")
    assert world.why(task).expected is None
    rows("UPDATE workers SET status = 'active'")
    rows("UPDATE tickets SET claimed_at = now() - interval '2 minutes'")
    assert lost_tickets.lost_tickets(world.app) == 1
    assert world.reason(task) == "runnable"
    assert world.claims(task)


def test_a_ticket_that_a_busy_worker_may_have(world: World, put: Put, redis_url: str, database: Database) -> None:
    world.rows("DELETE FROM workers")
    world.serve(stages.WORKER, n=1)
    stages.running(database, new_task())
    task = put()
    assert world.claims(task)
    redis_client.Redis.from_url(redis_url).flushdb()
    world.rows("UPDATE tickets SET claimed_at = now() - interval '5 s' WHERE worker_id IS NULL")
    assert world.reason(task) == "taken"
    assert f"{stages.WORKER} may have it, or else it is lost" in world.why(task).headline


def test_redis_away(world: World, without_redis: Celeriac, put: Put) -> None:
    task, waits = put(), put(delay=60.0)
    away = World(without_redis, world.rows)
    assert away.reason(task) == "redis_away"
    assert world.claims(task)
    assert away.reason(task) == "redis_away"
    told = away.why(task).headline
    assert told == "it is claimed, and Redis does not answer: workers take the ticket up when it is back"
    assert away.reason(waits) == "later"
    assert world.reason(task) == "in_queue"


def test_redis_that_hangs_costs_a_moment(valkey: local.ValkeyServer, world: World, database_url: str, put: Put) -> None:
    settings = Settings(database_url=database_url, redis_url=valkey.url)
    app = Celeriac("hangs", settings=settings, set_as_current=False)
    task = put()
    assert app.why(task.id).reason == "runnable"
    valkey.pause()
    try:
        began = time.perf_counter()
        assert app.why(task.id).reason == "redis_away"
        assert time.perf_counter() - began < 2
    finally:
        valkey.resume()
        app.close()


def test_where_nobody_asks_redis_its_part_is_unknown(world: World, put: Put, database: Database) -> None:
    task = put()
    assert world.claims(task)
    with database.reading() as connection:
        told = insights.why(connection, task.id)
    assert {c.name for c in told.checks if c.outcome == "unknown"} == {"redis", "ticket"}
    assert told.reason == "in_queue"
