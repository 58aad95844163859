"""Why a task has not started: each cause is named first while it lasts, and once it is cured the task goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis as redis_client
from celery import chord

from celeriac import Celeriac, Settings, insights, local
from celeriac.enqueue.rows import Receipt
from celeriac.errors import Unknown
from celeriac.insights import Check, Why
from celeriac.operate import policies
from celeriac.repair import lost_tickets
from celeriac.roles.role import Role
from celeriac.store.connections import Database
from tests.postgres import stages
from tests.postgres.conftest import new_task
from tests.processes import Rows

Put = Callable[..., Receipt]

REGISTER = "INSERT INTO roles (role, definition) VALUES (:role, CAST(:definition AS jsonb))"
WORKER = """INSERT INTO workers (worker_id, hostname, pid, queues, concurrency, status, resources, last_heartbeat_at)
    VALUES (:id, 'h', 1, '["work"]', :n, :status, CAST(:resources AS jsonb), now() - :age * interval '1 second')"""
BEAT = "INSERT INTO beats (beat_id, hostname, pid, last_tick_at) VALUES ('b', 'h', 2, now() - :age * interval '1 s')"
SCHEDULE = """INSERT INTO scheduled_jobs (name, kind, target, cron_expression, enabled, next_run_at)
    VALUES ('batcher work', 'pass', 'work', '@every 30s', :on, now() + interval '9 s')"""
PASSED = """WITH pass AS (
        INSERT INTO passes (role, by, free, at, last_at, why_nothing)
        VALUES ('work', 'x', 1, now(), now() - :age * interval '1 s', 'nothing is ready') RETURNING id)
    INSERT INTO batchers (role, last_pass) SELECT 'work', id FROM pass"""


class World:
    """A role, whoever serves it, and what is said of its tasks."""

    def __init__(self, app: Celeriac, rows: Rows) -> None:
        self.app, self.rows = app, rows
        self.role = Role(name="work")

    def declare(self, **options: Any) -> None:
        self.role = Role(name="work", **options)
        self.rows("DELETE FROM roles WHERE role = 'work'")
        self.rows(REGISTER, role="work", definition=json.dumps(self.role.definition()))

    def serve(self, name: str = "w-1", n: int = 2, status: str = "active", age: float = 1, **resources: Any) -> None:
        self.rows(WORKER, id=name, n=n, status=status, age=age, resources=json.dumps(resources))

    def why(self, task: Receipt) -> Why:
        return self.app.why(task.id)

    def reason(self, task: Receipt) -> str:
        told = self.why(task)
        no = [check for check in told.checks if check.outcome == "no"]
        assert [check.reason for check in no] in ([], [told.reason]), "one no, and it is the reason"
        if no:
            (first,) = no
            assert told.headline == first.sentence
            later = told.checks[told.checks.index(first) + 1 :]
            assert {check.outcome for check in later} <= {"not asked"}
        return told.reason

    def check(self, task: Receipt, name: str) -> Check:
        (found,) = [check for check in self.why(task).checks if check.name == name]
        return found

    def claims(self, task: Receipt) -> bool:
        """Whether the next pass of the role takes it."""
        self.app.dispatcher.publish(self.app.dispatcher.run_pass(self.role).tickets)
        return self.rows("SELECT status FROM worker_tasks WHERE id = :id", id=task.id) == [("claimed",)]

    def do(self, act: Callable[..., Any], *given: Any) -> None:
        with self.app.database.transaction() as connection:
            act(connection, *given, by="ann")


@pytest.fixture
def world(app: Celeriac, rows: Rows) -> World:
    """A role with a worker that lives."""
    world = World(app, rows)
    world.declare()
    world.serve()
    return world


@pytest.fixture
def without_redis(database_url: str) -> Iterator[Celeriac]:
    settings = Settings(database_url=database_url, redis_url="redis://127.0.0.1:9/0")
    app = Celeriac("away", settings=settings, set_as_current=False)
    yield app
    app.close()


# -- what holds a task back ------------------------------------------------------------------------------------------


def test_its_time(world: World, put: Put) -> None:
    task = put(delay=60.0)
    assert world.reason(task) == "later"
    assert world.why(task).expected == world.why(task).task["scheduled_for"]
    world.app.hasten(task.task_id)
    assert world.reason(task) == "entering"
    assert world.claims(task)


def test_a_role_that_nobody_has_declared_here(app: Celeriac, rows: Rows, put: Put) -> None:
    world, task = World(app, rows), put()
    assert world.reason(task) == "role_unknown"
    world.declare()
    assert world.reason(task) == "no_worker"


def test_a_paused_role(world: World, put: Put) -> None:
    task = put()
    world.do(policies.pause_role, "work")
    assert world.reason(task) == "role_paused"
    assert "celeriac resume role work" in str(world.why(task).next)
    assert not world.claims(task)
    world.do(policies.resume_role, "work")
    assert world.reason(task) == "runnable"
    assert world.claims(task)


def test_a_paused_account_whether_a_pass_met_it_or_not(world: World, put: Put, database: Database) -> None:
    task = put(account="acme")
    world.do(policies.pause_account, "acme")
    assert world.reason(task) == "account_paused"
    assert not world.claims(task)
    assert world.why(task).task["waits_for"] == "account"
    assert world.reason(task) == "account_paused"
    world.do(policies.resume_account, "acme")
    assert world.reason(task) == "entering"
    assert world.claims(task)


def test_an_account_that_may_have_nothing_or_no_more(world: World, put: Put, rows: Rows, database: Database) -> None:
    held, task = put(account="acme"), put(account="acme")
    rows("INSERT INTO account_policies (account, cap) VALUES ('acme', 0)")
    assert world.reason(task) == "account_cap"
    rows("UPDATE account_policies SET cap = 1")
    (run,) = stages.started(database, *stages.claimed(database, account="acme"))
    assert run.id == held.id
    assert world.reason(task) == "account_cap"
    assert world.check(task, "cap").facts == {"account": "acme", "holding": 1, "cap": 1}
    stages.settled(database, stages.outcome(run))
    assert world.reason(task) == "runnable"
    assert world.claims(task)


def test_members_that_have_not_finished(app: Celeriac, world: World, rows: Rows) -> None:
    @app.task(role="work", shared=False)
    def work(n: Any = 0) -> int:
        return 1

    body = chord([work.s(1), work.s(2)])(work.s())
    told = app.why(body.id)
    assert told.reason == "members"
    assert told.headline.startswith("2 of its members have not finished, task ")
    assert told.ahead == 2


def test_a_lock_and_who_has_it(world: World, put: Put, database: Database, rows: Rows) -> None:
    world.serve(stages.WORKER)
    (run,) = stages.running(database, new_task(lock_key="k"))
    second, third = put(lock_key="k"), put(lock_key="k")
    assert world.reason(second) == "lock"
    assert world.why(second).headline.startswith(f"task {run.id} (work) is running and has its lock 'k'; its worker")
    facts = world.check(third, "lock").facts
    assert (facts["holder"], facts["worker"], facts["place"], facts["waiting"]) == (run.id, stages.WORKER, 2, 2)
    assert (facts["stale"], facts["heartbeat_age"] < 60) == (False, True)
    rows("UPDATE tickets SET heartbeat_at = now() - interval '5 minutes'")
    assert world.check(second, "lock").facts["stale"] is True
    assert f"stale: its worker {stages.WORKER} is silent for 5 min" in world.why(second).headline
    stages.settled(database, stages.outcome(run))
    assert world.reason(second) == "runnable"
    assert world.reason(third) == "lock"
    assert world.claims(second)


def test_a_lock_whose_holder_may_not_start(world: World, put: Put, rows: Rows) -> None:
    holder, task = put("other", lock_key="k"), put(lock_key="k")
    rows(REGISTER, role="other", definition="{}")
    world.do(policies.pause_role, "other")
    assert world.why(task).headline == (
        f"task {holder.id} (other, whose role is paused) is pending and has its lock 'k'"
    )
    assert world.why(task).basis == f"unknown, because task {holder.id} has not begun"


def test_when_a_lock_may_come_free(world: World, put: Put, database: Database, rows: Rows) -> None:
    (run,) = stages.running(database, new_task(lock_key="k"))
    task = put(lock_key="k")
    assert world.why(task).basis.startswith("unknown, because nobody has measured")
    rows("INSERT INTO batchers (role, seconds_per_task) VALUES ('work', 3600)")
    expected = world.why(task).expected
    (began,) = rows("SELECT started_at + interval '1 hour' FROM worker_tasks WHERE id = :id", id=run.id)
    assert (expected,) == began


def test_a_rate(world: World, put: Put, rows: Rows) -> None:
    task = put()
    rows("INSERT INTO role_limits (role, declared, rate_limit, tokens) VALUES ('work', '{}', '1/h', 0)")
    assert world.reason(task) == "rate"
    assert world.why(task).headline == "as many tasks of its role have begun as its rate lets: 1/h"
    rows("UPDATE role_limits SET tokens = 1")
    assert world.reason(task) == "runnable"
    assert world.claims(task)


def test_a_full_window(world: World, put: Put, database: Database) -> None:
    world.declare(window=1)
    (run,) = stages.running(database, new_task())
    task = put()
    assert world.reason(task) == "window_full"
    assert world.check(task, "window").facts == {"window": 1, "held": 1}
    stages.settled(database, stages.outcome(run))
    assert world.reason(task) == "runnable"
    assert world.claims(task)


def test_an_account_that_holds_nothing_is_told_for_how_many_rounds(world: World, put: Put, rows: Rows) -> None:
    """Whether guarantee 10 holds for it, from the record of the passes."""
    world.declare(batch_size=1)
    put(account="many")
    quiet = put(account="quiet")
    rows("""INSERT INTO passes (role, by, free, claimants, given)
        VALUES ('work', 'beat', 1, '[{"account": "quiet", "waiting": 1}, {"account": "many", "waiting": 2}]',
            '{"many": 1}')""")
    facts = world.check(quiet, "turn").facts
    assert (facts["holding"], facts["fair"], facts["rounds_waited"]) == (0, 1, 1)
    assert world.why(quiet).headline.endswith("; its account holds 0, 1.0 would be fair, and it waits 1 round already")


def test_whose_turn_it_is(world: World, put: Put, database: Database) -> None:
    world.declare(batch_size=1)
    many, quiet = [put(account="many") for _ in range(3)], put(account="quiet")
    assert [world.reason(task) for task in many] == ["runnable", "not_its_turn", "not_its_turn"]
    assert world.reason(quiet) == "not_its_turn", "the rotation begins with the other"
    assert world.claims(many[0])
    assert world.reason(quiet) == "runnable"
    assert world.reason(many[1]) == "not_its_turn"
    facts = world.check(many[2], "turn").facts
    assert (facts["holding"], facts["ahead"], facts["others_first"], facts["free"]) == (1, 1, 1, 1)
    assert (facts["fair"], facts["rounds_waited"]) == (3, 0)
    assert world.why(many[2]).headline.endswith("; its account holds 1, 3.0 would be fair")
    assert world.claims(quiet)
    assert world.claims(many[1])


def test_one_that_has_expired_is_taken_up_to_be_cancelled(world: World, put: Put, rows: Rows) -> None:
    task = put()
    rows("UPDATE tasks SET expires_at = now() - interval '1 s'")
    assert world.why(task).headline.endswith(
        "the next pass of its role takes it; it has expired, and whoever takes it up cancels it"
    )
    assert world.claims(task)


# -- who brings it to a worker ---------------------------------------------------------------------------------------


def test_a_role_for_which_only_beat_makes_passes(world: World, put: Put, rows: Rows) -> None:
    world.declare(prompt=False)
    task = put()
    assert world.reason(task) == "no_pass"
    rows(SCHEDULE, on=False)
    assert "is switched off" in world.why(task).headline
    rows("UPDATE scheduled_jobs SET enabled = true")
    assert "no beat runs" in world.why(task).headline
    rows(BEAT, age=90)
    assert "no beat runs, the last ticked 1 min 30 s ago" in world.why(task).headline
    rows("UPDATE beats SET last_tick_at = now()")
    assert world.reason(task) == "runnable"
    (next_pass,) = rows("SELECT next_run_at FROM scheduled_jobs")
    assert (world.why(task).expected,) == next_pass
    assert world.claims(task)


def test_a_beat_that_ticks_but_not_this_schedule(world: World, put: Put, rows: Rows) -> None:
    world.declare(prompt=False)
    rows(SCHEDULE, on=True)
    rows(BEAT, age=0)
    task = put()
    assert world.reason(task) == "runnable"
    rows("UPDATE beats SET last_tick_at = now() - interval '30 s'")
    assert world.check(task, "passes").sentence.startswith("beat ran 30 s ago")
    rows("UPDATE scheduled_jobs SET next_run_at = now() - interval '40 s'")
    assert world.reason(task) == "no_pass"
    assert world.why(task).headline.endswith("no beat runs its schedule 'batcher work', which is overdue for 40 s")


def test_no_pass_since_it_was_due_although_a_worker_lives(world: World, put: Put, rows: Rows) -> None:
    rows(PASSED, age=300)
    task = put(delay=-200.0)
    rows("UPDATE tasks SET created_at = now() - interval '200 s'")
    assert world.reason(task) == "no_pass"
    assert world.why(task).headline.startswith("no pass of its role came since it was due 3 min 20 s ago")
    rows("UPDATE passes SET last_at = now()")
    assert world.reason(task) == "runnable"


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
        "w-1 (heard 1 min 15 s ago) takes from the queue 'work'; 2 of 2 processes are free, and none has taken it for "
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


# -- once it has begun -------------------------------------------------------------------------------------------------


def test_one_that_runs_or_is_over_waits_for_nothing(world: World, database: Database, rows: Rows) -> None:
    (run,) = stages.running(database, new_task())
    assert world.app.why(run.id).reason == "running"
    rows("UPDATE tickets SET heartbeat_at = now() - interval '1 hour'")
    assert "silent for 1 h, stale" in world.app.why(run.task_id).headline
    stages.settled(database, stages.outcome(run))
    told = world.app.why(run.id)
    assert (told.reason, told.headline, told.checks) == ("finished", "it is completed", ())
    with pytest.raises(Unknown):
        world.app.why(4711)


def test_a_history_says_the_same(world: World, put: Put, database: Database) -> None:
    first, second = put(lock_key="k"), put(lock_key="k")
    for task in (first, second):
        told = world.why(task)
        with database.reading() as connection:
            history = insights.history(connection, task.id, world.app.probe)
        assert (history.why, history.ahead) == (told.headline, told.ahead)
