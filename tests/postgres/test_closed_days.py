"""What is told of days that are over is what they have, whoever writes there, deletes there, or drops one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text

from celeriac import insights
from celeriac.insights import Filter
from celeriac.repair import days
from celeriac.store.connections import Database
from celeriac.store.migrate import BEGIN_DAY
from celeriac.store.states import CANCELLED, COMPLETED, FAILED
from tests.examples import of_a_hundred
from tests.postgres.test_days_begun import DRAWN, TODAY
from tests.processes import Rows

ENDED = text("""
INSERT INTO celeriac.history (id, task_id, role, account, status, priority, scheduled_for, args, kwargs, completed_at,
    retry_count, tries, max_rounds, losses, created_at)
VALUES (:id, CAST(:id AS text), :role, 'a', :status, 0, :at, '[]', '{}', :at, 0, 0, 1, 0, :at)
""")

THERE = text("""
SELECT id, role, status, completed_at FROM celeriac.history WHERE CAST(:role AS text) IS NULL OR role = :role
ORDER BY id DESC
""")

COUNTED = text("SELECT completed, failed, cancelled FROM celeriac.count_ended(:role, 1000)")

CLEAR = """
DELETE FROM celeriac.history; DELETE FROM celeriac.ended; DELETE FROM celeriac.days_begun; DELETE FROM celeriac.days;
DELETE FROM celeriac.day_roles; DELETE FROM celeriac.role_totals; DELETE FROM celeriac.day_changes;
DELETE FROM celeriac.dropped_days
"""

ROLES = ("old", "other", "work")

#: What happens: a midnight; the sweep `history`, and what a prune does first; a task ends, today or so many days ago;
#: one is deleted, or ends in another way after all; what a sweep has made of the oldest day is dropped.
STEPS = st.lists(
    st.one_of(
        st.just(("midnight", None)),
        st.just(("sweep", None)),
        st.just(("tell", None)),
        st.tuples(
            st.just("end"),
            st.tuples(st.integers(0, 4), st.sampled_from(ROLES), st.sampled_from([COMPLETED, FAILED, CANCELLED])),
        ),
        st.tuples(st.just("end"), st.tuples(st.just(0), st.sampled_from(ROLES), st.just(COMPLETED))),
        st.tuples(st.just("forget"), st.integers(0, 20)),
        st.tuples(st.just("change"), st.integers(0, 20)),
        st.just(("drop", None)),
    ),
    min_size=6,
    max_size=25,
)


class Days:
    """Steps, each committed. `now`: noon of the present day."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.now = datetime.combine(datetime.now(UTC).date(), time(12), UTC)
        self.run(CLEAR)
        self.run(TODAY.format(self.now.date()))
        self.ids: list[int] = []

    def run(self, statement: str, **given: Any) -> None:
        with self.database.transaction() as connection:
            connection.execute(text(statement), given)

    def midnight(self, _: None = None) -> None:
        self.now += timedelta(days=1)
        self.run(TODAY.format(self.now.date()))

    def sweep(self, _: None = None) -> None:
        with self.database.transaction() as connection:
            connection.execute(BEGIN_DAY)
            connection.execute(text("SELECT celeriac.add_history_day(:day)"), {"day": self.now.date()})

    def tell(self, _: None = None) -> None:
        days.tell(self.database)

    def end(self, how: tuple[int, str, str]) -> None:
        with self.database.transaction() as connection:
            self.ids.append(put(connection, self.now - timedelta(days=how[0]), *how[1:]))

    def forget(self, which: int) -> None:
        if self.ids:
            self.run("SELECT celeriac.forget(ARRAY[CAST(:id AS bigint)])", id=self.ids.pop(which % len(self.ids)))

    def change(self, which: int) -> None:
        if self.ids:
            self.run("UPDATE celeriac.history SET status = 'failed' WHERE id = :id", id=self.ids[which % len(self.ids)])

    def drop(self, _: None = None) -> None:
        self.run("""SELECT celeriac.drop_history_day(min(day)) FROM celeriac.days
            WHERE is_closed AND to_regclass('celeriac.history_' || to_char(day, 'YYYYMMDD')) IS NOT NULL
            HAVING count(*) > 0""")


def put(connection: Connection, at: datetime, role: str = "work", status: str = COMPLETED) -> int:
    number = int(connection.exec_driver_sql(DRAWN).scalar_one())
    connection.execute(ENDED, {"id": number, "role": role, "status": status, "at": at})
    return number


def pages(connection: Connection, wanted: Filter) -> Iterator[int]:
    after = None
    while True:
        page = insights.list_tasks(connection, wanted, limit=2, after=after)
        yield from (task["id"] for task in page.items)
        if (after := page.next) is None:
            return


def differences(connection: Connection) -> list[str]:
    """What is told otherwise than it is."""
    wrong = []
    for role in (None, *ROLES):
        there = connection.execute(THERE, {"role": role}).all()
        counted = tuple(sum(row.status == status for row in there) for status in (COMPLETED, FAILED, CANCELLED))
        if (told := tuple(connection.execute(COUNTED, {"role": role}).one())) != counted:
            wrong.append(f"{role}: {counted} are counted as {told}")
        meant = {status: [row.id for row in there if row.status == status] for status in (FAILED, CANCELLED)}
        by_time = sorted((r for r in there if r.status == COMPLETED), key=lambda r: (r.completed_at, r.id))
        meant[COMPLETED] = [row.id for row in by_time][::-1]
        lists = {status: [*pages(connection, Filter(statuses=[status], role=role))] for status in meant}
        meant["any"] = [row.id for row in there]
        lists["any"] = [*pages(connection, Filter(role=role))]
        wrong += [
            f"{role}, {name}: {lists[name]} instead of {meant[name]}" for name in meant if lists[name] != meant[name]
        ]
    return wrong


@settings(max_examples=of_a_hundred(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_counts_and_lists_are_those_of_the_rows_whatever_midnights_pass(
    database: Database, steps: list[tuple[str, Any]]
) -> None:
    here = Days(database)
    for step, how in steps:
        getattr(here, step)(how)
    with database.transaction() as connection:
        assert differences(connection) == []
    here.sweep()
    here.tell()
    with database.transaction() as connection:
        assert differences(connection) == []


#: As if nobody in another database of the server had written meanwhile.
NOBODY_ELSE = "UPDATE days SET closing = '3' WHERE closing IS NOT NULL"


def closed(rows: Rows) -> int:
    return int(rows("SELECT count(*) FROM days WHERE is_closed")[0][0])


def test_a_day_is_not_closed_before_all_who_wrote_there_are_over(database: Database, rows: Rows) -> None:
    here = Days(database)
    here.sweep()
    with database.engine.connect() as slow:
        put(slow, here.now)
        here.midnight()
        here.sweep()
        here.tell()
        assert closed(rows) == 0
        slow.commit()
    rows(NOBODY_ELSE)
    here.tell()
    assert closed(rows) == 1
    with database.transaction() as connection:
        assert differences(connection) == []


@pytest.mark.parametrize("late", ["a row more", "a row less"])
def test_what_is_written_while_a_day_is_closed_is_told_once(database: Database, rows: Rows, late: str) -> None:
    here = Days(database)
    here.sweep()
    here.end((0, "work", COMPLETED))
    here.midnight()
    here.sweep()
    with database.engine.connect() as slow:
        if late == "a row more":
            put(slow, here.now - timedelta(days=1))
        else:
            slow.execute(text("SELECT celeriac.forget(:ids)"), {"ids": here.ids})
        with database.transaction() as connection:
            assert differences(connection) == []
        # It began after the midnight, but before whoever closes: as if it had not been there when closing began.
        rows("UPDATE days SET closing = '3' WHERE NOT is_closed AND day < celeriac.today()")
        here.tell()
        with database.transaction() as connection:
            assert differences(connection) == []
        slow.commit()
    with database.transaction() as connection:
        assert differences(connection) == []
    here.tell()
    assert closed(rows) == 1
    with database.transaction() as connection:
        assert differences(connection) == []


def test_nobody_who_writes_to_a_day_that_is_over_waits_for_another(database: Database, rows: Rows) -> None:
    here = Days(database)
    here.sweep()
    for _ in range(2):
        here.end((0, "work", FAILED))
    here.midnight()
    here.sweep()
    here.tell()
    with database.engine.connect() as one, database.engine.connect() as other:
        for connection, task in zip((one, other), here.ids, strict=True):
            connection.exec_driver_sql("SET LOCAL lock_timeout = '2 s'")
            connection.execute(text("SELECT celeriac.forget(:ids)"), {"ids": [task]})
        one.commit()
        other.commit()
    with database.transaction() as connection:
        assert differences(connection) == []


def test_what_failed_before_the_migration_is_listed_before_and_after_it_went_through(
    database: Database, rows: Rows
) -> None:
    here = Days(database)
    for _ in range(3):
        here.sweep()
        here.end((0, "work", FAILED))
        here.end((0, "work", COMPLETED))
        here.end((0, "other", CANCELLED))
        here.midnight()
    rows("DELETE FROM ended WHERE id % 2 = 0")
    rows("UPDATE ended SET status = NULL, role = NULL, account = NULL, completed_at = NULL")
    rows("UPDATE days SET is_listed = false")
    with database.transaction() as connection:
        assert differences(connection) == []
    with database.statement() as connection:
        connection.exec_driver_sql("CALL celeriac.list_failures()")
    assert rows("SELECT count(*), count(*) FILTER (WHERE NOT is_listed) FROM days") == [(3, 0)]
    assert rows("SELECT count(*) FROM ended WHERE status = 'failed' AND role = 'work' AND account = 'a'") == [(3,)]
    with database.transaction() as connection:
        assert [*pages(connection, Filter(statuses=[FAILED]))] == here.ids[0::3][::-1]
        assert [*pages(connection, Filter(statuses=[CANCELLED]))] == here.ids[2::3][::-1]
