"""A task that comes alone starts without a pass, where a pass could decide nothing else."""

from __future__ import annotations

import uuid

import pytest

from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import enqueued, started_alone
from tests.processes import Rows

#: What must not be for a lone task to start without a pass.
IN_THE_WAY = {
    "nothing": "SELECT",
    "another ready task": "INSERT INTO worker_tasks (task_id, role) VALUES ('other', 'work')",
    "sixteen active tasks": """INSERT INTO worker_tasks (task_id, role, status, token, claimed_at)
        SELECT n, 'work', 'claimed', gen_random_uuid(), now() FROM generate_series(1, 16) n""",
    "a paused role": "INSERT INTO roles (role, definition, paused) VALUES ('work', '{}', true)",
    "a paused account": "INSERT INTO account_policies (account, paused) VALUES ('a', true)",
    "a cap": "INSERT INTO account_policies (account, cap) VALUES ('a', 9)",
    "another role": "UPDATE worker_tasks SET role = 'other'",
    "its lock": "UPDATE worker_tasks SET lock_key = 'k', waits_for = 'lock'",
    "somebody's claim": "UPDATE worker_tasks SET status = 'claimed', token = gen_random_uuid(), claimed_at = now()",
}


@pytest.mark.parametrize("obstacle", IN_THE_WAY)
def test_a_lone_task_starts_without_a_pass_only_if_a_pass_could_decide_nothing_else(
    database: Database, rows: Rows, obstacle: str
) -> None:
    (task,) = enqueued(database, new_task(account="a"))
    rows(IN_THE_WAY[obstacle])
    token = str(uuid.uuid4())
    begun = started_alone(database, task.id, token)
    assert [(t.id, t.token) for t in begun] == ([(task.id, token)] if obstacle == "nothing" else [])


def test_a_lone_task_whose_start_got_no_answer_is_this_process_s_at_the_next_ask(database: Database) -> None:
    (task,) = enqueued(database, new_task())
    token = str(uuid.uuid4())
    assert len(started_alone(database, task.id, token)) == 1
    assert started_alone(database, task.id, str(uuid.uuid4()), again=True) == []
    assert [t.id for t in started_alone(database, task.id, token, again=True)] == [task.id]
    assert started_alone(database, task.id, token) == []


@pytest.mark.parametrize(("seconds", "expired"), [(-1.0, True), (1000.0, False), (None, None)])
def test_a_lone_task_that_has_expired_is_told_to_be_so_and_may_not_begin(
    database: Database, seconds: float | None, expired: bool | None
) -> None:
    (receipt,) = enqueued(database, new_task(expires_in=seconds))
    (task,) = started_alone(database, receipt.id, str(uuid.uuid4()))
    assert task.expired is expired
