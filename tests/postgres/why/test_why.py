"""Why a task has not started: each cause is named first while it lasts, and once it is cured the task goes on."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest
from celery import chord

from celeriac import Celeriac, insights
from celeriac.enqueue.rows import Receipt
from celeriac.errors import Unknown
from celeriac.operate import policies
from celeriac.store.connections import Database
from tests.postgres import stages
from tests.postgres.conftest import new_task
from tests.postgres.why.conftest import REGISTER, World
from tests.processes import Rows

Put = Callable[..., Receipt]

BEAT = "INSERT INTO beats (beat_id, hostname, pid, last_tick_at) VALUES ('b', 'h', 2, now() - :age * interval '1 s')"
SCHEDULE = """INSERT INTO scheduled_jobs (name, kind, target, cron_expression, enabled, next_run_at)
    VALUES ('batcher work', 'pass', 'work', '@every 30s', :on, now() + interval '9 s')"""
PASSED = """WITH pass AS (
        INSERT INTO passes (role, by, free, at, last_at, why_nothing)
        VALUES ('work', 'x', 1, now(), now() - :age * interval '1 s', 'nothing is ready') RETURNING id)
    INSERT INTO batchers (role, last_pass) SELECT 'work', id FROM pass"""


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


def test_a_cure_is_one_argument_to_the_shell_whatever_a_tenant_called_his_account(world: World, put: Put) -> None:
    account = "x; touch /tmp/mine $(id) 'a"
    task = put(account=account)
    world.do(policies.pause_account, account)
    command = str(world.why(task).next).partition(": ")[2]
    assert shlex.split(command) == ["celeriac", "accounts", "resume", account]


def test_a_paused_role(world: World, put: Put) -> None:
    task = put()
    world.do(policies.pause_role, "work")
    assert world.reason(task) == "role_paused"
    assert "celeriac roles resume work" in str(world.why(task).next)
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


def test_checks_there_is_no_time_for_are_not_asked(database: Database, rows: Rows) -> None:
    (made,) = stages.enqueued(database, new_task(delay=60.0))
    with database.reading() as connection:
        told = insights.why(connection, made.id, within=-1.0)
        assert told.headline == "why it waits is known in part: due took too long to check"
        assert {check.outcome for check in told.checks[1:]} == {"not asked"}
        assert insights.why(connection, made.id, within=60.0).reason == "later"
