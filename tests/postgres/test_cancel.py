"""Cancel: at once where nobody runs the task; a running one is told, and is not run again whatever becomes of it."""

from __future__ import annotations

import pytest

from celeriac import Celeriac
from celeriac.repair import rescue
from celeriac.settle import release
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import again, claimed, enqueued, outcome, running, settled, started
from tests.processes import Rows

EVENTS = "SELECT kind, from_status, to_status, by, why FROM celeriac.task_events ORDER BY id"


def asked_to_cancel(app: Celeriac, task_id: str) -> str | None:
    return app.cancel(task_id, by="somebody", why="not needed")


@pytest.mark.parametrize("waits", [{}, {"delay": 1000.0}, {"lock_key": "k"}])
def test_a_waiting_task_is_cancelled_at_once(
    app: Celeriac, database: Database, rows: Rows, waits: dict[str, object]
) -> None:
    enqueued(database, new_task("another", lock_key="k"))
    (task,) = enqueued(database, new_task(**waits))
    assert asked_to_cancel(app, task.task_id) == "cancelled"
    columns = "status, waits_for, error_message, completed_at IS NOT NULL"
    assert rows(f"SELECT {columns} FROM worker_tasks WHERE role = 'work'") == [("cancelled", None, "not needed", True)]
    assert rows(EVENTS) == [("cancel", "pending", "cancelled", "somebody", "not needed")]


def test_a_claimed_task_is_cancelled_at_once_and_its_ticket_starts_nothing(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    (task,) = enqueued(database, new_task())
    ticket = claimed(database)
    assert asked_to_cancel(app, task.task_id) == "cancelled"
    assert started(database, *ticket) == []
    assert rows(EVENTS) == [("cancel", "claimed", "cancelled", "somebody", "not needed")]


def test_a_running_task_is_asked_to_stop(app: Celeriac, database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task())
    assert asked_to_cancel(app, task.task_id) == "asked"
    assert rows("SELECT status, cancel_requested_at IS NOT NULL FROM worker_tasks") == [("running", True)]
    assert rows(EVENTS) == [("cancel", "running", "running", "somebody", "not needed")]


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_finished_task_stays_what_it_is(app: Celeriac, database: Database, rows: Rows, status: str) -> None:
    (task,) = running(database, new_task())
    settled(database, outcome(task, status))
    assert asked_to_cancel(app, task.task_id) is None
    assert rows("SELECT status, error_message FROM worker_tasks") == [(status, None)]
    assert rows(EVENTS) == []


def test_an_unknown_task_cannot_be_cancelled(app: Celeriac) -> None:
    assert asked_to_cancel(app, "no such task") is None


def test_a_cancelled_task_frees_its_unique_key(app: Celeriac, database: Database) -> None:
    (task,) = enqueued(database, new_task(unique_key="u"))
    asked_to_cancel(app, task.task_id)
    assert enqueued(database, new_task(unique_key="u"))[0].is_new


def test_a_task_that_ended_before_it_heard_of_the_cancel_stays_ended(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    (task,) = running(database, new_task())
    asked_to_cancel(app, task.task_id)
    assert settled(database, outcome(task, result=1)) == {task.id}
    assert rows("SELECT status, result, cancel_requested_at FROM worker_tasks") == [("completed", 1, None)]


@pytest.mark.parametrize("kind", ["retry", "retry_round", "snooze", "timeout"])
def test_a_task_that_was_asked_to_stop_is_not_tried_again(
    app: Celeriac, database: Database, rows: Rows, kind: str
) -> None:
    """Its attempt failed before it heard of the cancel: who asked was told that it stops."""
    (task,) = running(database, new_task(lock_key="k"))
    (following,) = enqueued(database, new_task(lock_key="k"))
    asked_to_cancel(app, task.task_id)
    assert settled(database, again(task, kind=kind, error="ValueError: no")) == {task.id}
    columns = "status, waits_for, completed_at IS NOT NULL, error_message"
    assert rows(f"SELECT {columns} FROM worker_tasks ORDER BY id") == [
        ("cancelled", None, True, "ValueError: no"),
        ("pending", None, False, None),
    ]
    assert rows("SELECT task, kind, from_status, to_status FROM celeriac.task_events ORDER BY id DESC LIMIT 1") == [
        (task.id, kind, "running", "cancelled")
    ]
    assert claimed(database)[0] == [following.id]


def test_a_task_that_was_asked_to_stop_is_not_run_again_when_its_worker_is_lost(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    (following,) = enqueued(database, new_task(lock_key="k"))
    asked_to_cancel(app, task.task_id)
    rows("UPDATE worker_tasks SET last_heartbeat_at = now() - interval '1 day' WHERE status = 'running'")
    assert rescue.rescue(app) == 1
    assert rows("SELECT status, waits_for FROM worker_tasks ORDER BY id") == [("cancelled", None), ("pending", None)]
    assert claimed(database)[0] == [following.id]


def test_a_task_that_was_asked_to_stop_is_not_run_again_when_it_is_handed_back(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    (task,) = running(database, new_task())
    asked_to_cancel(app, task.task_id)
    with database.transaction() as connection:
        release.release(connection, [task.token], started=True, kind="handed_back", why="", by="w", loss=False)
    assert rows("SELECT status, token FROM worker_tasks") == [("cancelled", None)]
