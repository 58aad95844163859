"""History's days are made ahead, and nobody waits for who makes them."""

from __future__ import annotations

import time

import pytest

from celeriac import Celeriac
from celeriac.repair import history
from celeriac.store.connections import Database
from celeriac.store.migrate import DAYS_AHEAD
from tests.processes import Rows

DAYS = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'history'::regclass AND inhrelid <> 'history_rest'::regclass"

DROP_THE_LAST = """DO $$ BEGIN EXECUTE (SELECT 'DROP TABLE ' || max(inhrelid::regclass::text) FROM pg_inherits
    WHERE inhparent = 'history'::regclass AND inhrelid <> 'history_rest'::regclass); END $$"""

#: Generous for a tenth of a second: a wait for the other transaction would be without end.
SOON = 5.0


@pytest.fixture
def a_day_short(app: Celeriac, rows: Rows) -> None:
    """A test's template has fewer days than an installation."""
    history.add_days(app)
    rows(DROP_THE_LAST)


@pytest.mark.usefixtures("a_day_short")
def test_a_day_that_is_missing_is_made_once(app: Celeriac, rows: Rows) -> None:
    assert [history.add_days(app) for _ in range(2)] == [1, 0]
    assert rows(DAYS) == [(DAYS_AHEAD + 1,)]


@pytest.mark.usefixtures("a_day_short")
@pytest.mark.parametrize(
    "held",
    [
        "SELECT FROM celeriac.history_rest",
        "LOCK celeriac.history IN ACCESS EXCLUSIVE MODE",
        "SELECT pg_advisory_xact_lock(hashtextextended('celeriac history', 0))",
    ],
    ids=["its default partition is read", "its table is locked", "another sweep makes it"],
)
def test_who_is_in_the_way_is_not_waited_for(app: Celeriac, database: Database, rows: Rows, held: str) -> None:
    with database.transaction() as other:
        other.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = '8 s'")
        other.exec_driver_sql(held)
        began = time.monotonic()
        assert history.add_days(app) == 0
        assert time.monotonic() - began < SOON
    assert history.add_days(app) == 1
