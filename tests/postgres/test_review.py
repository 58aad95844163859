"""What goes on between passes: retries that are due, and the Queue Master's review."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from celeriac import Celeriac, days, repair
from celeriac.dispatch.keys import ticket_key
from celeriac.dispatch.passes import Dispatcher
from celeriac.enqueue.rows import Receipt
from celeriac.roles.role import Role
from celeriac.settle import release
from celeriac.store.connections import Database
from tests.postgres.conftest import Recorder, new_task
from tests.postgres.stages import running
from tests.processes import Rows

SLOW = Role(name="work", prompt=False, batch_size=2, window=3)

#: As a settle leaves it for a retry, and as `countdown` leaves a new task; both due now.
RETRYING = """
UPDATE worker_tasks SET waits_for = 'time', scheduled_for = now(), retry_count = 1, started_at = now() WHERE id = :id
"""
DELAYED = "UPDATE worker_tasks SET waits_for = 'time', scheduled_for = now() WHERE id = :id"
STATUS = "SELECT status FROM worker_tasks WHERE id = :id"

Put = Callable[..., Receipt]


@pytest.fixture
def status(rows: Rows) -> Callable[[Receipt], str]:
    return lambda task: str(rows.one(STATUS, id=task.id))


def test_a_due_retry_does_not_wait_for_the_pass_and_a_delayed_task_does(
    put: Put, dispatcher: Dispatcher, publisher: Recorder, rows: Rows, status: Callable[[Receipt], str]
) -> None:
    """Its round has had its slot; a new task that comes by way of a delay may not pass the others by."""
    retry, delayed, waiting = put(), put(), put()
    rows(RETRYING, id=retry.id)
    rows(DELAYED, id=delayed.id)
    assert dispatcher.resume(SLOW) == 2
    assert [list(t.ids) for t in publisher.published] == [[retry.id]]
    assert (status(retry), status(delayed), status(waiting)) == ("claimed", "pending", "pending")
    assert rows.one("SELECT waits_for IS NULL FROM worker_tasks WHERE id = :id", id=delayed.id)


def test_retries_keep_to_the_window(put: Put, dispatcher: Dispatcher, publisher: Recorder, rows: Rows) -> None:
    for task in [put() for _ in range(5)]:
        rows(RETRYING, id=task.id)
    dispatcher.resume(SLOW)
    assert len(publisher.published) == SLOW.window


@pytest.mark.parametrize("column", ["paused", "cap"])
def test_a_paused_or_bounded_account_s_retries_are_the_pass_s_business(
    put: Put, dispatcher: Dispatcher, publisher: Recorder, rows: Rows, column: str
) -> None:
    task = put(account="a")
    rows(RETRYING, id=task.id)
    value = {"paused": "true", "cap": "1"}[column]
    rows(f"INSERT INTO account_policies (account, {column}) VALUES ('a', {value})")
    dispatcher.resume(SLOW)
    assert publisher.published == []


def test_a_paused_role_s_retries_wait(put: Put, dispatcher: Dispatcher, publisher: Recorder, rows: Rows) -> None:
    rows("INSERT INTO roles (role, definition, paused) VALUES ('work', '{}', true)")
    rows(RETRYING, id=put().id)
    assert dispatcher.resume(SLOW) == 0
    assert publisher.published == []


def test_a_retry_whose_lock_somebody_has_lines_up_behind_it(
    put: Put, dispatcher: Dispatcher, publisher: Recorder, rows: Rows
) -> None:
    retry = put(lock_key="k")
    rows(RETRYING, id=retry.id)
    put(lock_key="k")
    dispatcher.resume(SLOW)
    assert publisher.published == []
    assert rows.one("SELECT waits_for FROM worker_tasks WHERE id = :id", id=retry.id) == "lock"


@pytest.fixture
def reviewed(app: Celeriac) -> Celeriac:
    @app.task(role="work", prompt=True, stale_after=10, keep=days(1), shared=False)
    def work() -> None: ...

    @app.task(role="unhurried", prompt=False, shared=False)
    def unhurried() -> None: ...

    app.register_roles()
    return app


def test_the_sweep_makes_due_tasks_of_every_role_ready(reviewed: Celeriac, put: Put, rows: Rows) -> None:
    for role in ("work", "unhurried"):
        rows(DELAYED, id=put(role).id)
    assert repair.sweep(reviewed, "promote") == 2
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE waits_for IS NULL") == 2
    assert repair.sweep(reviewed, "promote") == 0


def test_a_review_rescues_promotes_removes_and_leaves_each_queue_s_state(
    reviewed: Celeriac, database: Database, put: Put, rows: Rows
) -> None:
    running(database, new_task("work"))
    rows("UPDATE worker_tasks SET last_heartbeat_at = now() - interval '11 seconds'")
    rows(DELAYED, id=put("unhurried").id)
    rows("""INSERT INTO worker_tasks (task_id, role, status, completed_at)
        VALUES ('old', 'work', 'completed', now() - interval '2 days')""")
    assert repair.sweep(reviewed, "review") == 3
    states = dict(rows("SELECT role, found FROM queue_states WHERE state = 'reviewed'"))
    assert states["work"] == {"active": 0, "ready": 1, "due": 0, "rescued": 1, "removed": 1, "promoted": 0}
    assert states["unhurried"] == {"active": 0, "ready": 1, "due": 0, "rescued": 0, "removed": 0, "promoted": 1}
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE task_id = 'old'") == 0
    assert rows.one("SELECT min(reviewed_at) > now() - interval '1 minute' FROM queue_states")


def test_two_masters_at_once_do_each_thing_once(reviewed: Celeriac, database: Database, rows: Rows) -> None:
    """Each with connections of its own, as in two processes."""
    other = Celeriac("another master", settings=reviewed.settings, set_as_current=False)
    running(database, *(new_task("work") for _ in range(100)))
    rows("UPDATE worker_tasks SET last_heartbeat_at = now() - interval '11 seconds'")
    rows("""INSERT INTO worker_tasks (task_id, role, status, completed_at)
        SELECT 'old ' || n, 'work', (ARRAY['completed', 'failed', 'cancelled'])[n % 3 + 1], now() - interval '2 days'
        FROM generate_series(1, 3000) n""")
    begin = Barrier(2)

    def master(app: Celeriac) -> int:
        begin.wait()
        return repair.sweep(app, "review")

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(master, (reviewed, other))) == 3100
    other.database.dispose()
    assert rows("SELECT status, losses, count(*) FROM worker_tasks GROUP BY 1, 2") == [("pending", 1, 100)]
    assert rows("SELECT kind, count(*), count(DISTINCT task) FROM task_events GROUP BY 1") == [("rescue", 100, 100)]


def test_a_review_wakes_idle_queues_that_have_work(reviewed: Celeriac, put: Put) -> None:
    put("work")
    repair.sweep(reviewed, "review")
    assert reviewed.enqueuer.kicker.flush(30)
    with reviewed.connection_for_write() as connection:
        assert connection.default_channel.client.llen(ticket_key("work")) == 1


def test_a_long_but_healthy_task_outlives_its_review(reviewed: Celeriac, database: Database, rows: Rows) -> None:
    """The seed's review failed a job past its time while it still ran, and then it ran twice."""
    (task,) = running(database, new_task("work"))
    rows("UPDATE worker_tasks SET started_at = now() - interval '1 hour', last_heartbeat_at = now()")
    assert repair.sweep(reviewed, "review") == 0
    assert rows.one(STATUS, id=task.id) == "running"
    with database.transaction() as connection:
        assert release.stale(connection, 10) == []
