"""What the metrics tell of each role."""

from __future__ import annotations

from typing import Any

import pytest

from celeriac import Celeriac
from celeriac.alerts.measure import SAMPLES
from celeriac.insights.fleet import figures, watched
from celeriac.insights.fleet.metrics import metrics
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.finished import finished, registered
from tests.postgres.stages import claimed, enqueued, running
from tests.postgres.workflows import run_all
from tests.processes import Rows


def of(database: Database, role: str = "work") -> dict[str, Any]:
    with database.statement() as connection:
        (row,) = metrics(connection, role)
    return row


def test_a_role_nobody_used_has_no_rates(database: Database, rows: Rows) -> None:
    registered(rows, "work", "other")
    assert of(database) == {
        "role": "work", "queue_depth": 0, "success_rate": None, "failed_rate": None, "retry_rate": None,
        "retry_success_rate": None, "average_wait": None, "average_run": None, "longest_running": None,
        "priorities": {},
    }  # fmt: skip
    with database.statement() as connection:
        assert [row["role"] for row in metrics(connection)] == ["other", "work"]


def test_the_queue_is_what_waits_and_what_is_claimed(database: Database, rows: Rows) -> None:
    registered(rows, "work")
    enqueued(database, *(new_task(priority=p) for p in (0, 9, 10, 55, 55, -1)))
    claimed(database, n=1)
    enqueued(database, new_task(delay=60.0, priority=90))
    running(database, new_task(lock_key="k", priority=99))
    enqueued(database, new_task(lock_key="k", priority=100))
    row = of(database)
    assert row["queue_depth"] == 8
    assert row["priorities"] == {-10: 1, 0: 2, 10: 1, 50: 2, 90: 1, 100: 1}


def test_rates_are_of_the_last_hour(database: Database, rows: Rows) -> None:
    registered(rows, "work", keep=86_400)
    finished(rows, n=6)
    finished(rows, n=3, retry_count=2)
    finished(rows, status="failed", n=1, retry_count=3)
    finished(rows, status="failed", n=50, ago=61)
    finished(rows, status="cancelled", n=9, retry_count=1)
    row = of(database)
    assert (row["success_rate"], row["failed_rate"]) == (pytest.approx(0.9), pytest.approx(0.1))
    assert (row["retry_rate"], row["retry_success_rate"]) == (pytest.approx(0.4), pytest.approx(0.75))
    assert row["average_run"] == pytest.approx(1)


def test_what_failed_for_good_in_its_first_attempt_was_not_retried(database: Database, rows: Rows) -> None:
    """Its rounds are used up all the same."""
    registered(rows, "work")
    finished(rows, n=9)
    finished(rows, status="failed")
    rows("UPDATE worker_tasks SET tries = 5, max_retries = 4 WHERE status = 'failed'")
    assert (of(database)["retry_rate"], of(database)["retry_success_rate"]) == (0, None)


def test_a_role_that_forgets_its_successes_has_rates_as_well(app: Celeriac, database: Database, rows: Rows) -> None:
    """Of ten tasks one fails in both of its rounds, another in its first."""
    ran: list[int] = []

    @app.task(
        role="work", shared=False, prompt=False, keep=None, max_retries=0, max_rounds=2, round_delay=0.0, chunk=99
    )
    def work(n: int) -> None:
        ran.append(n)
        if n == 0 or (n == 1 and ran.count(1) == 1):
            raise ValueError("on purpose")

    app.register_roles()
    work.bulk([(n,) for n in range(10)])
    run_all(app, lambda: rows("UPDATE worker_tasks SET scheduled_for = now() WHERE waits_for = 'time'"))
    app.tally.write()
    row = of(database)
    assert (row["failed_rate"], row["retry_success_rate"]) == (pytest.approx(0.1), pytest.approx(0.5))
    assert (row["success_rate"], row["retry_rate"]) == (pytest.approx(0.9), pytest.approx(0.2))
    assert row["average_run"] > 0
    told = rows("SELECT completed_last_hour, failed_last_hour FROM celeriac.v_worker_capacity WHERE role = 'work'")
    assert told == [(9, 1)]
    rows("UPDATE celeriac.outcomes SET minute = minute - interval '61 minutes'")
    assert rows("SELECT completed FROM celeriac.last_hour('work')") == [(0,)]


@pytest.mark.parametrize("keep", [None, 0])
def test_a_member_of_a_group_that_leaves_its_row_to_the_body_is_counted_once(
    database: Database, rows: Rows, keep: int | None
) -> None:
    """Its worker has counted it as well, as all of a role that keeps no successes."""
    registered(rows, "work", keep=keep)
    finished(rows, n=30)
    finished(rows, status="failed", n=10)
    rows("INSERT INTO outcomes VALUES ('work', date_trunc('minute', now()), 30, 10, 0, 0, 40)")
    assert rows("SELECT completed, failed FROM celeriac.last_hour('work')") == [(30, 10)]
    assert of(database)["failed_rate"] == pytest.approx(0.25)
    with database.statement() as connection:
        (recent,) = figures.recent(connection, 1_000)
        (measured,) = watched.of_roles(connection, samples=SAMPLES, most=10, newest=10_000)
    assert (recent["completed"], recent["failed"]) == (30, 10)
    assert measured["failed_rate"] == pytest.approx(0.25)


def test_what_postgres_did_not_take_is_counted_later(app: Celeriac, rows: Rows) -> None:
    @app.task(role="work", shared=False, prompt=False, keep=None)
    def work() -> None: ...

    app.register_roles()
    work.delay()
    run_all(app)
    rows("ALTER TABLE celeriac.outcomes RENAME TO gone")
    app.tally.write()
    rows("ALTER TABLE celeriac.gone RENAME TO outcomes")
    assert rows("SELECT count(*) FROM celeriac.outcomes") == [(0,)]
    app.tally.write()
    assert rows("SELECT role, completed, failed FROM celeriac.outcomes") == [("work", 1, 0)]


def test_a_task_waits_from_when_it_was_due(database: Database, rows: Rows) -> None:
    registered(rows, "work")
    finished(rows, n=2, waited=10)
    finished(rows, waited=40)
    rows("UPDATE worker_tasks SET created_at = created_at - interval '1 day'")
    assert of(database)["average_wait"] == pytest.approx(20)


def test_the_longest_run_is_told(database: Database, rows: Rows) -> None:
    registered(rows, "work")
    running(database, new_task(), new_task())
    rows("UPDATE worker_tasks SET started_at = now() - interval '90 minutes' WHERE id = 1")
    assert of(database)["longest_running"] == pytest.approx(5400, abs=60)
