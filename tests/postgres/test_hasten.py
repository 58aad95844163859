"""Hasten: what waits for its time is due now; keys lead to the task that holds them."""

from __future__ import annotations

from celeriac import Celeriac, insights
from celeriac.dispatch.passes import Dispatcher
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import enqueued, running
from tests.processes import Rows


def test_a_planned_task_is_claimed_by_the_next_pass(
    app: Celeriac, database: Database, dispatcher: Dispatcher, rows: Rows
) -> None:
    @app.task(role="work", shared=False)
    def work() -> None: ...

    role = app.roles.of(work)
    (planned,) = enqueued(database, new_task(delay=3600))
    assert dispatcher.dispatch(role) == 0
    assert app.hasten(planned.task_id, by="somebody")
    assert dispatcher.dispatch(role) == 1
    events = "SELECT kind, by, why LIKE 'was due at 2%' FROM celeriac.task_events WHERE kind = 'hasten'"
    assert rows(events) == [("hasten", "somebody", True)]


def test_who_meets_a_task_that_is_planned_for_later_is_told_for_when(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    @app.task(role="work", unique_by="key", shared=False)
    def work(key: str) -> None: ...

    first = work.apply_async(["a"], countdown=3600)
    due = rows.one("SELECT scheduled_for FROM worker_tasks")
    again = work.delay("a")
    assert (first.is_new, first.due_at) == (True, None)
    assert (again.is_new, again.id, again.due_at) == (False, first.id, due)
    (receipt,) = enqueued(database, new_task(unique_key="a"))
    assert (receipt.is_new, receipt.waits_for, receipt.due_at) == (False, "time", due)


def test_who_meets_a_task_that_does_not_wait_for_its_time_is_told_none(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    @app.task(role="work", unique_by="key", lock_by="lock", shared=False)
    def work(key: str, lock: str) -> None: ...

    for key, wanted in (("ready", None), ("behind", "lock")):
        work.delay(key, "l")
        again = work.delay(key, "l")
        assert (again.is_new, again.due_at) == (False, None)
        (receipt,) = enqueued(database, new_task(unique_key=key))
        assert (receipt.is_new, receipt.waits_for, receipt.due_at) == (False, wanted, None)
    running(database, new_task("other", unique_key="running"))
    (receipt,) = enqueued(database, new_task("other", unique_key="running"))
    assert (receipt.is_new, receipt.due_at) == (False, None)


def test_what_does_not_wait_for_its_time_is_left_alone(app: Celeriac, database: Database, rows: Rows) -> None:
    (at_work,) = running(database, new_task())
    leading, behind = enqueued(database, new_task(lock_key="k"), new_task(lock_key="k"))
    before = rows("SELECT id, scheduled_for FROM worker_tasks ORDER BY id")
    assert not any(app.hasten(task) for task in (at_work.task_id, leading.task_id, behind.task_id, "nobody"))
    assert rows("SELECT id, scheduled_for FROM worker_tasks ORDER BY id") == before


def test_keys_lead_to_the_task_that_holds_them(database: Database) -> None:
    keyed = {"lock_key": "store:7", "unique_key": "7"}
    (at_work,) = running(database, new_task("resync", **keyed))
    (behind,) = enqueued(database, new_task("discovery", **keyed))
    (later,) = enqueued(database, new_task("resync", unique_key="8", delay=60))
    with database.statement() as connection:
        held = insights.active_under(connection, "store:7")
        assert held is not None
        assert (held["id"], held["status"]) == (at_work.id, "running")
        assert insights.active_under(connection, "store:8") is None
        found = [
            insights.unfinished(connection, *key) for key in (("resync", "7"), ("discovery", "7"), ("resync", "8"))
        ]
        assert [task and task["id"] for task in found] == [at_work.id, behind.id, later.id]
        assert insights.unfinished(connection, "discovery", "8") is None


def test_a_waiting_head_holds_nothing_yet(database: Database) -> None:
    enqueued(database, new_task(lock_key="store:7"))
    with database.statement() as connection:
        assert insights.active_under(connection, "store:7") is None
