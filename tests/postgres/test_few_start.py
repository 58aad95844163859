"""A few tasks that come alone start without a pass, where a pass could decide nothing else."""

from __future__ import annotations

import uuid

import pytest

from celeriac.settle.outcome import Started
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import enqueued, started, started_few
from tests.processes import Rows

#: Where somebody has to choose among what is ready, or may not start all of it.
NEEDS_A_PASS = {
    "sixteen active tasks": """INSERT INTO worker_tasks (task_id, role, status, token, claimed_at)
        SELECT n, 'work', 'claimed', gen_random_uuid(), now() FROM generate_series(1, 16) n""",
    "a paused role": "INSERT INTO roles (role, definition, paused) VALUES ('work', '{}', true)",
    "a paused account": "INSERT INTO account_policies (account, paused) VALUES ('a', true)",
    "a cap": "INSERT INTO account_policies (account, cap) VALUES ('a', 9)",
    "one that is due now": """INSERT INTO worker_tasks (task_id, role, waits_for, scheduled_for)
        VALUES ('due', 'work', 'time', now() - interval '1 second')""",
    "tasks parked for an account that is resumed": "INSERT INTO celeriac.unparking VALUES ('b')",
    "another task, never measured": "INSERT INTO worker_tasks (task_id, role) VALUES ('other', 'work')",
}

#: Where nothing of the role is ready.
NOTHING = {
    "a lock, and an account that is paused again": """UPDATE worker_tasks SET lock_key = 'k', waits_for = 'lock';
        INSERT INTO celeriac.unparking VALUES ('b');
        INSERT INTO account_policies (account, paused) VALUES ('b', true)""",
    "another role": "UPDATE worker_tasks SET role = 'other'",
    "its lock": "UPDATE worker_tasks SET lock_key = 'k', waits_for = 'lock'",
    "somebody's claim": "UPDATE worker_tasks SET status = 'claimed', token = gen_random_uuid(), claimed_at = now()",
}


def measured(rows: Rows, seconds: float) -> None:
    rows("INSERT INTO celeriac.batchers (role, seconds_per_task) VALUES ('work', :seconds)", seconds=seconds)


def token() -> str:
    return str(uuid.uuid4())


def ids(begun: list[Started] | None) -> list[int] | None:
    return None if begun is None else [task.id for task in begun]


@pytest.mark.parametrize("obstacle", [*NEEDS_A_PASS, *NOTHING])
def test_a_lone_task_starts_without_a_pass_only_if_a_pass_could_decide_nothing_else(
    database: Database, rows: Rows, obstacle: str
) -> None:
    enqueued(database, new_task(account="a"))
    rows((NEEDS_A_PASS | NOTHING)[obstacle])
    assert ids(started_few(database, token())) == (None if obstacle in NEEDS_A_PASS else [])


def test_one_that_nothing_is_in_the_way_of_starts(database: Database) -> None:
    (task,) = enqueued(database, new_task(account="a"))
    mine = token()
    assert [(t.id, t.token) for t in started_few(database, mine) or []] == [(task.id, mine)]


def test_small_tasks_of_all_accounts_start_together_the_urgent_first(database: Database, rows: Rows) -> None:
    measured(rows, 0.001)
    accounts = [("b", 0), ("a", 0), ("c", 9), ("a", 5)]
    made = enqueued(database, *(new_task(account=a, priority=p) for a, p in accounts))
    mine = token()
    wanted = [made[n].id for n in (2, 3, 0, 1)]
    assert ids(started_few(database, mine)) == wanted
    assert rows("SELECT ids, accounts FROM celeriac.tickets") == [(wanted, ["c", "a", "b", "a"])]
    assert rows.one("SELECT count(*) FROM celeriac.ready") == 0


@pytest.mark.parametrize(
    ("seconds", "most", "start"), [(0.0024, 16, 4), (0.0026, 16, None), (1e-9, 3, None), (9, 16, None)]
)
def test_more_than_may_or_than_a_pass_takes_are_left_to_a_pass(
    database: Database, rows: Rows, seconds: float, most: int, start: int | None
) -> None:
    measured(rows, seconds)
    enqueued(database, *(new_task() for _ in range(4)))
    begun = started_few(database, token(), most=most)
    assert (begun and len(begun)) == start
    assert rows.one("SELECT count(*) FROM celeriac.ready") == 4 - (start or 0)


def test_one_that_may_be_what_kills_its_processes_runs_alone(database: Database, rows: Rows) -> None:
    measured(rows, 0.001)
    suspect, other = enqueued(database, new_task(), new_task())
    rows("UPDATE celeriac.tasks SET losses = 2 WHERE id = :id", id=suspect.id)
    assert started_few(database, token()) is None
    rows("UPDATE worker_tasks SET status = 'cancelled' WHERE id = :id", id=other.id)
    assert ids(started_few(database, token())) == [suspect.id]


def test_what_another_process_starts_just_now_is_left_to_it(database: Database, rows: Rows) -> None:
    measured(rows, 0.001)
    first, second = enqueued(database, new_task(), new_task())
    with database.transaction() as other:
        other.exec_driver_sql(f"SELECT FROM celeriac.ready WHERE id = {first.id} FOR UPDATE")
        assert ids(started_few(database, token())) == [second.id]
        assert ids(started_few(database, token())) == []


def test_tasks_whose_start_got_no_answer_are_this_process_s_at_the_next_ask(database: Database, rows: Rows) -> None:
    measured(rows, 0.001)
    made = enqueued(database, new_task(), new_task())
    mine = token()
    assert len(started_few(database, mine) or []) == 2
    assert started(database, [], token(), again=True) == []
    assert sorted(ids(started(database, [], mine, again=True)) or []) == [task.id for task in made]
    assert started_few(database, mine) == []


@pytest.mark.parametrize(("seconds", "expired"), [(-1.0, True), (1000.0, False), (None, None)])
def test_a_task_that_has_expired_is_told_to_be_so_and_may_not_begin(
    database: Database, seconds: float | None, expired: bool | None
) -> None:
    enqueued(database, new_task(expires_in=seconds))
    (task,) = started_few(database, token()) or []
    assert task.expired is expired
