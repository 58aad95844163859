"""400 days of history beside 10 of them: no verb touches half as many pages again, and none locks more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from celery import chain

from celeriac import Celeriac, insights
from celeriac.enqueue.insert import enqueue
from celeriac.insights import Filter
from celeriac.insights.failures import failures
from celeriac.insights.failures.burning import burning
from celeriac.insights.fleet.one_role import idle
from celeriac.insights.fleet.slower import slower
from celeriac.insights.tasks import attempts, tasks
from celeriac.repair import days, prune
from celeriac.seam import results
from celeriac.store.ids import fresh_id
from tests.postgres.conftest import new_task
from tests.postgres.locks import counted
from tests.postgres.test_many_days import MADE, MOST
from tests.postgres.touched import touched
from tests.postgres.workflows import declare, run_all
from tests.processes import Rows

pytestmark = [pytest.mark.usefixtures("current"), pytest.mark.nightly("800,000 rows of history are made")]

FEW, MANY = 10, 400

#: Rows of each day; a tenth of them has failed.
A_DAY = 2_000

#: What a tree of 40 times as many entries has more, in levels, for all that is looked up in one.
LEVELS = 12

#: Lists that a page of 100 is read of, and the one behind it.
WANTED = (
    Filter(), Filter(role="archive"), Filter(account="nobody"), Filter(statuses=["completed"]),
    Filter(statuses=["completed"], role="archive"), Filter(statuses=["failed"]),
    Filter(statuses=["failed", "completed"]),
)  # fmt: skip

FIRST = 1_000_000

ROWS = """
INSERT INTO celeriac.history (id, task_id, role, account, status, priority, scheduled_for, args, kwargs, started_at,
    completed_at, retry_count, tries, max_rounds, losses, created_at)
SELECT :first + n, 'old-' || :first + n, 'archive', 'a' || n % 50,
    CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'completed' END, 0, at, '[]', '{}', at, at, 0, 0, 1, 0, at
FROM generate_series(1, :n) AS n,
    LATERAL (SELECT CAST(CAST(:day AS date) AS timestamptz) + n * interval '20 seconds' AS at) AS t
"""

CLOSE, FOLD = "SELECT celeriac.close_days(40)", "SELECT celeriac.fold_days(1000000)"

Act = Callable[[Celeriac], None]


def made(rows: Rows, begin: int, end: int) -> None:
    """Fill the days that lie so many behind today: from `begin`, the older one, until before `end`."""
    today = datetime.now(UTC).date()
    for n in range(begin, end, -40):
        rows(MADE, day=today - timedelta(days=n))
    for n in range(begin, end, -1):
        rows(ROWS, day=today - timedelta(days=n), first=FIRST + (MANY - n) * A_DAY, n=A_DAY)
    rows(str(days.BEGIN_CLOSING))
    while rows(CLOSE)[0][0]:
        pass
    rows(FOLD)
    rows("ANALYZE")


def verbs(app: Celeriac) -> dict[str, Act]:
    add = declare(app, keep="forever")["add"]
    old = f"old-{FIRST + (MANY - FEW) * A_DAY + 1}"

    def enqueued(app: Celeriac) -> None:
        with app.database.transaction() as connection:
            named = [new_task(task_id=fresh_id(), is_named=True), new_task("archive", task_id=old, is_named=True)]
            assert [receipt.is_new for receipt in enqueue(connection, named)] == [True, False]

    def chained(app: Celeriac) -> None:
        result = chain(add.s(1, 1), add.s(1))()
        run_all(app)
        with app.database.reading() as connection:
            assert results.over(connection, [result.id]) == [result.id]

    def pruned(app: Celeriac) -> None:
        prune.prune_tasks(app.database, app.settings)

    def page(app: Celeriac) -> None:
        with app.database.transaction() as connection:
            task = tasks.get(connection, old)
            tasks.events(connection, task["id"])
            attempts.children(connection, task["id"])
            attempts.traceback(connection, task["id"])
            assert len(attempts.runs(connection, "archive")) == attempts.MOST_RUNS
            tasks.gone(connection, task["id"], otherwise=30)
            assert tasks.last_completion(connection, "archive") is not None
            assert idle(connection, "archive").since is not None

    def listed(app: Celeriac) -> None:
        with app.database.transaction() as connection:
            for wanted in WANTED:
                newest = insights.list_tasks(connection, wanted)
                assert len(newest.items) == (0 if wanted.account == "nobody" else 100), wanted
                insights.list_tasks(connection, wanted, after=newest.next)
            assert len(insights.matching(connection, Filter(statuses=["failed"]), most=500).ids) == 500

    def counted_(app: Celeriac) -> None:
        with app.database.transaction() as connection:
            for role in (None, "archive"):
                assert insights.counts(connection, role, cap=10_000)["completed"].n == 10_000
            failures.failures(connection, since=86_400.0)
            failures.failures(connection, role="archive")

    def figured(app: Celeriac) -> None:
        with app.database.transaction() as connection:
            insights.capacity(connection)
            insights.account_hours(connection)
            insights.done_by_worker(connection)
            burning(connection)
            slower(connection)

    return {
        "enqueue": enqueued, "chain": chained, "prune": pruned, "task page": page, "lists": listed,
        "counts": counted_, "figures of an hour": figured,
    }  # fmt: skip


def pages_of(app: Celeriac, acts: dict[str, Act]) -> dict[str, int]:
    pages = {}
    for name, act in acts.items():
        act(app)
        with touched(app.database) as seen:
            act(app)
        pages[name] = seen.total()
        with counted(app.database) as locks:
            act(app)
        assert locks, name
        assert {statement: n for statement, n in locks.items() if n > MOST} == {}, name
    return pages


def test_days_that_are_kept_weigh_next_to_nothing(app: Celeriac, rows: Rows) -> None:
    rows("""INSERT INTO celeriac.roles (role, definition, parameters) VALUES
        ('archive', '{"keep": "forever"}', '[]'), ('work', '{}', '[]')""")
    rows("SELECT setval('celeriac.tasks_id_seq', :last)", last=FIRST + 2 * MANY * A_DAY)
    acts = verbs(app)
    made(rows, FEW, 0)
    few = pages_of(app, acts)
    made(rows, MANY, FEW)
    many = pages_of(app, acts)
    print(f"pages beside {FEW} days: {few}, beside {MANY}: {many}")
    for name in acts:
        assert many[name] <= 1.5 * few[name] + LEVELS, (name, few, many)
