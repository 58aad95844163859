"""No statement of the engine locks or reads more for the days of history that are kept.

Which statements there are is derived from the code (`explained.MEET_ROOMS`), so that a new one is held to it, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, create_engine, text

from celeriac.repair import days
from tests.postgres.backlog import fill
from tests.postgres.explained import MEET_ROOMS, Clone, as_executed, rolled_back
from tests.postgres.locks import HELD
from tests.postgres.parameters import statements
from tests.postgres.parameters.selected import SELECTED
from tests.postgres.plans import explain
from tests.postgres.test_days_weigh_nothing import FEW, FIRST, MANY
from tests.postgres.test_many_days import MADE, MOST

#: Rows of each day; a tenth of them has failed.
A_DAY = 200

LAST = FIRST + 2 * MANY * A_DAY

#: Pages that may be added however little a statement reads: a level of an index for each of the 60 rows, and some.
ALLOWED = SELECTED + 20
#: What moves tasks from one state table to another, or reads all of them, locks more than that.
MOST_OF_MANY = 140
IN_MANY_TABLES = {
    "operate.cancel.CANCEL", "enqueue.gates.CLOSE", "seam.results.FORGET", "enqueue.insert.UNDO", "operate.steer.HOLD",
    "settle.write.REFUSED", "insights.watched.ROLES", "operate.move.MOVE", "operate.steer.RETRY",
}  # fmt: skip

ROWS = """
INSERT INTO celeriac.history (id, task_id, role, account, status, priority, scheduled_for, args, kwargs, started_at,
    completed_at, retry_count, tries, max_rounds, losses, created_at)
SELECT n, 'old-' || n, 'archive', 'a' || n % 50,
    CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'completed' END, 0, at, '[]', '{}', at, at, 0, 0, 1, 0, at
FROM generate_series(:first, :last) AS n,
    LATERAL (SELECT CAST(CAST(:day AS date) AS timestamptz) + n % 1000 * interval '20 seconds' AS at) AS t
"""

#: As it is where the day began before these tasks were enqueued, and their ids tell it. Of the newest days all are
#: listed, so that the directory is no small table beside few days either.
LISTED = """
WITH begun AS (INSERT INTO celeriac.days_begun (day, first) VALUES (:day, :first))
INSERT INTO celeriac.ended (id, day, task_id, status, role, account, completed_at)
SELECT id, :day, task_id, nullif(status, 'completed'), CASE WHEN status = 'failed' THEN role END,
    CASE WHEN status = 'failed' THEN account END, CASE WHEN status = 'failed' THEN completed_at END
FROM celeriac.history WHERE id >= :first AND id <= :last AND (NOT :is_old OR status = 'failed')
    AND completed_at >= :day AND completed_at < CAST(:day AS date) + 1
"""

TABLES = """
SELECT relname FROM pg_class WHERE relnamespace = CAST('celeriac' AS regnamespace) AND relkind = 'r'
    AND coalesce('autovacuum_enabled=off' <> ALL (reloptions), true)
"""


def made(connection: Connection, begin: int, end: int) -> None:
    """Fill the days that lie so many behind today: from `begin`, the older one, until before `end`."""
    today = datetime.now(UTC).date()
    for n in range(begin, end, -1):
        connection.execute(text(MADE.replace("39", "0")), {"day": today - timedelta(days=n)})
        first = FIRST + (MANY - n) * A_DAY + 1
        of_day = {"day": today - timedelta(days=n), "first": first, "last": first + A_DAY - 1, "is_old": n > FEW}
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")  # no triggers
        connection.execute(text(ROWS), of_day)
        connection.execute(text(LISTED), of_day)
    connection.commit()
    connection.execute(days.BEGIN_CLOSING)
    connection.commit()
    connection.execute(days.CLOSE, {"most": MANY})
    connection.execute(days.FOLD, {"most": MANY})
    connection.commit()
    vacuum(connection)


def vacuum(connection: Connection) -> None:
    """Let the dead weigh the same in both measurements: there are none at first, and none is removed meanwhile."""
    for table in connection.execute(text(TABLES)).scalars().all():
        connection.exec_driver_sql(f"ALTER TABLE celeriac.{table} SET (autovacuum_enabled = off)")
    connection.commit()
    with connection.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as apart:
        apart.exec_driver_sql("VACUUM ANALYZE")


def begin_today(connection: Connection) -> None:
    """Draw ids behind those of all days to come."""
    first = connection.execute(text("SELECT setval('celeriac.tasks_id_seq', :last)"), {"last": LAST}).scalar_one()
    connection.execute(text("UPDATE celeriac.days_begun SET first = :first"), {"first": first})
    connection.commit()


def measured(connection: Connection) -> dict[str, tuple[int, int]]:
    """Pages and locks of each statement, by name and number of its parameters. Each is run before: the first time a
    connection reads what the catalog says of these tables.
    """
    found = {}
    wanted = statements(connection)
    for name, given in wanted.items():
        for n, one in enumerate(given if name in MEET_ROOMS else (), start=1):
            connection.rollback()
            rolled_back(connection, name, one)
            connection.rollback()
            with as_executed(connection, name):
                held = connection.exec_driver_sql(HELD).scalar_one()
                plan = explain(connection, MEET_ROOMS[name], **{p: one[p] for p in MEET_ROOMS[name]._bindparams})
                found[f"{name}, {n}"] = plan.pages, connection.exec_driver_sql(HELD).scalar_one() - held
    return found


@contextmanager
def filled(url: str, n: int) -> Iterator[Connection]:
    """What every backlog has, and that many days of history."""
    engine = create_engine(url)
    with engine.connect() as connection:
        fill(connection, [], 0)
        begin_today(connection)
        made(connection, n, 0)
        yield connection
    engine.dispose()


@pytest.mark.nightly("410 days of history are made")
@pytest.mark.timeout(600)
def test_no_statement_locks_or_reads_more_for_the_days_that_are_kept(clone: Clone) -> None:
    with filled(clone(), FEW) as connection:
        few = measured(connection)
    with filled(clone(), MANY) as connection:
        many = measured(connection)
    assert few.keys() == many.keys()
    most = {name: MOST_OF_MANY if name.partition(",")[0] in IN_MANY_TABLES else MOST for name in few}
    wrong = {
        name: (few[name], many[name])
        for name, (pages, locks) in many.items()
        if locks > most[name] or pages > 1.5 * few[name][0] + ALLOWED
    }
    assert wrong == {}, "\n".join(map(str, wrong.items()))
