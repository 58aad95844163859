"""What a bulk means by its filter, at the instant it is asked for; nonsense is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from celeriac import insights
from celeriac.enqueue.rows import Receipt
from celeriac.errors import BadValue
from celeriac.insights import Filter, Moment
from celeriac.insights.tasks import lists
from celeriac.repair import bulks as works
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.finished import fail
from tests.postgres.test_bulk_actions import FAILED, asked, figures
from tests.processes import Rows

Put = Callable[..., Receipt]


def test_what_waits_gets_another_priority_and_what_comes_later_keeps_its_own(database: Database, put: Put) -> None:
    for _ in range(3):
        put()
    bulk = asked(database, "prioritise", Filter(role="work"), priority=7)
    later = put().id
    works.work(database)
    assert figures(database, bulk) == ("done", 3, 3, 0, 0)
    with database.reading() as connection:
        found = lists.list_tasks(connection, Filter()).items
    assert {row["id"]: row["priority"] for row in found if row["id"] == later} == {later: 0}
    assert sorted(row["priority"] for row in found) == [0, 7, 7, 7]


def test_a_fingerprint_means_its_failures(database: Database, rows: Rows) -> None:
    fail(rows, 40, "HTTPError: 502 of store 7")
    fail(rows, 2, "KeyError: 'price'")
    with database.reading() as connection:
        first, *_ = insights.failures(connection).groups
    bulk = asked(database, wanted=first.fingerprint, role="work")
    fail(rows, 2, "HTTPError: 502 of store 8")
    works.work(database)
    assert figures(database, bulk) == ("done", 40, 40, 0, 0)


def test_ages_are_those_of_the_instant(database: Database, rows: Rows) -> None:
    """However long it takes to gather them."""
    fail(rows, 2, "boom")
    rows("UPDATE celeriac.history SET created_at = now() - interval '59 minutes'")
    with database.reading() as connection:
        at = insights.moment(connection)
    before = Moment(at.upto, at.until)
    bulk = asked(database, wanted=Filter(role="work", older_than=3600), at=before)
    rows("UPDATE celeriac.history SET created_at = now() - interval '61 minutes'")
    rows("UPDATE celeriac.bulk_actions SET until = until - interval '2 minutes'")
    works.work(database)
    assert figures(database, bulk)[1] == 0


@pytest.mark.parametrize(
    ("move", "wanted", "more", "says"),
    [
        ("forget", FAILED, {}, "give one of retry, cancel, prioritise"),
        ("retry", Filter(), {}, "a bulk of everything is a slip"),
        ("retry", FAILED, {"priority": 1}, "give a whole number"),
        ("prioritise", FAILED, {}, "give a whole number"),
        ("prioritise", FAILED, {"priority": 10**9}, "give a whole number"),
    ],
)
def test_nonsense_is_refused(database: Database, rows: Rows, move: str, wanted: Filter, more: Any, says: str) -> None:
    with pytest.raises(BadValue, match=says):
        asked(database, move, wanted, **more)
    assert rows("SELECT * FROM celeriac.bulk_actions") == []


def test_nothing_that_is_still_to_come_can_be_meant(database: Database, put: Put) -> None:
    put(new_task().role)
    with database.reading() as connection:
        now = insights.moment(connection)
    with pytest.raises(BadValue, match="an instant that was"):
        asked(database, at=Moment(now.upto + 10, now.until))
