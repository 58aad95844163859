"""A task starts for whoever has its token, once."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from celeriac import Celeriac
from celeriac.enqueue.rows import Receipt
from celeriac.run.arrive import run_ticket
from celeriac.store.connections import Database
from tests.postgres.stages import PID, WORKER, claimed, started
from tests.processes import Rows

Put = Callable[..., Receipt]

EVENTS = "SELECT kind, from_status, to_status FROM task_events ORDER BY id"
STATUS = "SELECT status FROM worker_tasks ORDER BY id"
ALL = "SELECT to_jsonb(t) FROM worker_tasks t ORDER BY id"


def test_a_start_says_who_runs_it_and_since_when(database: Database, put: Put, rows: Rows) -> None:
    put()
    (task,) = started(database, *claimed(database))
    since = "last_heartbeat_at - started_at < '1 s', now() - started_at < '10 s'"
    assert rows(f"SELECT status, worker_id, worker_pid, token::text, {since} FROM worker_tasks") == [
        ("running", WORKER, PID, task.token, True, True)
    ]


def test_a_role_of_another_name_starts_nothing(database: Database, put: Put, rows: Rows) -> None:
    put()
    ids, token = claimed(database)
    before = rows(ALL)
    assert started(database, ids, token, role="other") == []
    assert rows(ALL) == before


def test_a_wrong_token_starts_nothing(database: Database, put: Put, rows: Rows) -> None:
    put()
    ids, _ = claimed(database)
    before = rows(ALL)
    assert started(database, ids, str(uuid.uuid4())) == []
    assert rows(ALL) == before


def test_a_ticket_starts_its_tasks_once(database: Database, put: Put, rows: Rows) -> None:
    put()
    ticket = claimed(database)
    assert len(started(database, *ticket)) == 1
    before = rows(ALL)
    assert started(database, *ticket, pid=2) == []
    assert rows(ALL) == before


def test_a_ticket_starts_its_tasks_in_its_order_and_not_what_it_never_had(
    database: Database, put: Put, rows: Rows
) -> None:
    receipts = [put(priority=n) for n in range(3)]
    other = put()
    ids, token = claimed(database, n=3)
    assert ids == [r.id for r in reversed(receipts)]
    assert [task.id for task in started(database, [*ids, other.id, ids[0], 999_999], token)] == ids
    assert rows("SELECT status FROM worker_tasks WHERE id = :i", i=other.id) == [("pending",)]


@pytest.mark.parametrize("state", ["status = 'pending', token = NULL", "status = 'cancelled', completed_at = now()"])
def test_a_late_ticket_starts_nothing(database: Database, put: Put, rows: Rows, state: str) -> None:
    put()
    ticket = claimed(database)
    rows(f"UPDATE worker_tasks SET {state}")
    assert started(database, *ticket) == []


def test_a_task_past_its_expiry_is_cancelled_instead_of_run(
    app: Celeriac, database: Database, put: Put, rows: Rows
) -> None:
    ran = []

    @app.task(role="work", shared=False, prompt=False)
    def work(n: int) -> None:
        ran.append(n)

    put(kwargs={"n": 1}, expires_in=-1.0, lock_key="k")
    put(kwargs={"n": 2}, expires_in=1000.0)
    put(kwargs={"n": 3}, lock_key="k")
    run_ticket(app, "work", *claimed(database, n=2))
    assert ran == [2]
    assert rows(STATUS) == [("cancelled",), ("completed",), ("pending",)]
    assert rows("SELECT waits_for FROM worker_tasks WHERE status = 'pending'") == [(None,)], "it leads their lock now"
    assert rows(EVENTS) == [("expired", "running", "cancelled")]


def test_a_start_tells_which_of_its_tasks_have_expired(database: Database, put: Put) -> None:
    for seconds in (-1.0, 1000.0, None):
        put(expires_in=seconds)
    assert [task.expired for task in started(database, *claimed(database, n=3))] == [True, False, None]
