"""What is said to be runnable is what a pass takes, whatever there is of locks, policies, rates and room."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from celeriac import insights
from celeriac.dispatch.passes import Dispatcher
from celeriac.roles.role import Role
from celeriac.store.connections import Database
from tests.postgres import stages
from tests.postgres.conftest import new_task
from tests.postgres.passes import ids_of, policy
from tests.processes import Rows

#: Which cases are tried.
BY_DAY, BY_NIGHT = range(40), range(40, 200)
MORE = pytest.mark.nightly("more cases of the same; each is a system to set up")

ACCOUNTS = ("", "acme", "bert", "cora", "dora")

EMPTY = """TRUNCATE tasks, ready, later, behind, locks, looks, parked, tickets, history, account_policies, batchers,
    passes, roles, role_limits, unparking, workers, beats, celeriac.scheduled_jobs, ticks, task_events"""

#: A worker that takes tickets, and a beat that makes passes.
ALIVE = [
    """INSERT INTO workers (worker_id, hostname, pid, queues, concurrency) VALUES ('w', 'h', 1, '["work"]', 2)""",
    "INSERT INTO beats (beat_id, hostname, pid) VALUES ('b', 'h', 2)",
    """INSERT INTO scheduled_jobs (name, kind, target, cron_expression, next_run_at)
        VALUES ('batcher work', 'pass', 'work', '@every 30s', now() + interval '30 s')""",
]


@dataclass(frozen=True)
class Case:
    """`held`: accounts of what is claimed; `room`: free slots of the window; `tokens`: of a rate, if there is one."""

    waiting: Sequence[Mapping[str, Any]]
    held: Sequence[str]
    policies: Mapping[str, Mapping[str, Any]]
    room: int
    batch_size: int
    tokens: int | None
    cursor: str
    paused: bool


def drawn(seed: int) -> Case:
    random = Random(seed)
    some = random.choice

    def task() -> dict[str, Any]:
        plain = {"account": some(ACCOUNTS), "priority": random.randrange(3)}
        return plain | {"lock_key": some([None, None, "k", "l"]), "delay": some([0.0] * 7 + [60.0])}

    def policy() -> dict[str, Any]:
        return {
            "weight": some([0.3, 1.0, 3.0]),
            "cap": some([None, None, 0, 1, 3]),
            "paused": some([False] * 4 + [True]),
        }

    return Case(
        waiting=[task() for _ in range(random.randint(4, 14))],
        held=[some(ACCOUNTS) for _ in range(random.randrange(7))],
        policies={account: policy() for account in ACCOUNTS if some([True, False])},
        room=some([1, 1, 1, 2, 3, 4, 20, 0]), batch_size=some([1000, 1000, 2]),
        tokens=some([None] * 7 + [0, 7, 9]), cursor=some(ACCOUNTS), paused=some([False] * 19 + [True]),
    )  # fmt: skip


def set_up(case: Case, database: Database, rows: Rows) -> Role:
    rows(EMPTY)
    for statement in ALIVE:
        rows(statement)
    role = Role(name="work", window=len(case.held) + case.room or 1, batch_size=case.batch_size, chunk=1)
    definition = json.dumps(role.definition())
    insert = "INSERT INTO roles (role, definition, paused) VALUES ('work', CAST(:definition AS jsonb), :paused)"
    rows(insert, definition=definition, paused=case.paused)
    rows("INSERT INTO batchers (role, cursor) VALUES ('work', :cursor)", cursor=case.cursor)
    for account in case.held:
        stages.enqueued(database, new_task(account=account))
        stages.claimed(database, account=account)
    if case.tokens is not None:
        limited = "INSERT INTO role_limits (role, declared, rate_limit, tokens) VALUES ('work', '{}', '9/h', :n)"
        rows(limited, n=case.tokens)
    for task in case.waiting:
        stages.enqueued(database, new_task(**task))
    for account, columns in case.policies.items():
        policy(rows, account, **columns)
    return role


@pytest.mark.parametrize("seeds", [BY_DAY, pytest.param(BY_NIGHT, marks=MORE)])
def test_runnable_is_what_the_next_pass_takes(
    seeds: range, database: Database, dispatcher: Dispatcher, rows: Rows
) -> None:
    some = 0
    for seed in seeds:
        role = set_up(drawn(seed), database, rows)
        waiting = [task for (task,) in rows("SELECT id FROM worker_tasks WHERE status = 'pending'")]
        with database.reading() as connection:
            runnable = {task for task in waiting if insights.why(connection, task).reason == "runnable"}
        assert runnable == set(ids_of(dispatcher.run_pass(role))), f"seed {seed}: {drawn(seed)}"
        some += 0 < len(runnable) < len(waiting)
    assert some > len(seeds) / 2, "mostly the pass has to choose"
