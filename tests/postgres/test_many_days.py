"""History of 400 days: no statement of a task's way, of its page or of a prune locks more than with a week of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from celeriac import Celeriac
from celeriac.enqueue.insert import enqueue
from celeriac.insights.tasks import attempts, tasks
from celeriac.operate.steer import retry
from celeriac.repair import minutes, prune
from celeriac.seam import results
from tests.postgres.conftest import new_task
from tests.postgres.locks import counted
from tests.processes import Rows

DAYS = 400

#: Locks of relations that a statement may take: a day of history and its indexes are ten of them, and whoever may move
#: a task out of any room has all rooms.
MOST, OF_ALL_ROOMS = 60, 90

MADE = "SELECT count(celeriac.add_history_day(CAST(:day AS date) + n)) FROM generate_series(0, 39) AS n"

#: Ids from 1,000,001 on, ten a day; the tenth has failed.
ROWS = """
INSERT INTO celeriac.history (id, task_id, role, account, status, priority, scheduled_for, args, kwargs, started_at,
    completed_at, retry_count, tries, max_rounds, losses, created_at, parent_id)
SELECT 1000000 + n, 'old-' || n, 'archive', 'a', CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'completed' END, 0, at,
    '[]', '{}', at, at, 0, 0, 1, 0, at, CASE WHEN n = 2 THEN 1000001 END
FROM generate_series(1, :days * 10) AS n,
    LATERAL (SELECT CAST(CAST(:day AS date) + (n - 1) / 10 AS timestamptz) + interval '12 hours' AS at) AS t
"""


def first_day() -> date:
    return datetime.now(UTC).date() - timedelta(days=DAYS)


@pytest.fixture
def many_days(rows: Rows) -> None:
    for n in range(0, DAYS, 40):
        rows(MADE, day=first_day() + timedelta(days=n))
    rows("""INSERT INTO celeriac.roles (role, definition, parameters) VALUES
        ('archive', '{"keep": "forever"}', '[]'), ('work', '{}', '[]')""")
    rows(ROWS, day=first_day(), days=DAYS)
    rows("SELECT setval('celeriac.tasks_id_seq', 2000000)")
    rows("ANALYZE")


def enqueue_named(app: Celeriac) -> None:
    with app.database.transaction() as connection:
        enqueue(
            connection, [new_task(task_id="new", is_named=True), new_task("archive", task_id="old-5", is_named=True)]
        )


def look_up(app: Celeriac) -> None:
    with app.database.transaction() as connection:
        assert tasks.get(connection, 1_000_005)["task_id"] == "old-5"
        assert tasks.get(connection, "old-3990")["id"] == 1_003_990
        assert tasks.find(connection, "never was") is None
        assert [child["id"] for child in attempts.children(connection, 1_000_001)] == [1_000_002]
        assert tasks.rows_of(connection, ["old-7", "1000008"]) == {"old-7": 1_000_007, "1000008": 1_000_008}


def read_results(app: Celeriac) -> None:
    with app.database.transaction() as connection:
        assert results.over(connection, ["old-1", "none"]) == ["old-1"]
        assert results.failed(connection, ["old-1", "old-10"]) == {"old-10"}
        assert results.metas(connection, ["old-10"], ValueError)["old-10"]["status"] == "FAILURE"
        results.children(connection, 1_000_001)
        results.forget(connection, "old-3")


def retry_old(app: Celeriac) -> None:
    with app.database.transaction() as connection:
        retry(connection, [1_000_010], by="test")


def prune_nothing(app: Celeriac) -> None:
    prune.prune_tasks(app.database, app.settings)


def count_minutes(app: Celeriac) -> None:
    minutes.count_minutes(app)  # type: ignore[arg-type]


@pytest.mark.usefixtures("many_days")
def test_no_statement_locks_more_for_the_days_that_are_kept_and_a_prune_reads_none_again(app: Celeriac) -> None:
    prune.prune_tasks(app.database, app.settings)
    for act in (enqueue_named, look_up, read_results, retry_old, prune_nothing, count_minutes):
        with counted(app.database) as taken:
            act(app)
        assert taken, act.__name__
        most = OF_ALL_ROOMS if act is retry_old else MOST
        assert {statement: n for statement, n in taken.items() if n > most} == {}, act.__name__

    # And with nothing to do it reads no day again that is over.
    with counted(app.database) as taken:
        assert prune.prune_tasks(app.database, app.settings) == 0
    assert 5 < len(taken) < 20
