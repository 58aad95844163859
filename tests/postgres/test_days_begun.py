"""Ids tell the day of most finished tasks, and what they do not tell is listed, whatever midnights pass meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text

from celeriac import Celeriac
from celeriac.repair import history
from celeriac.store.connections import Database
from celeriac.store.migrate import BEGIN_DAY
from tests.examples import of_a_hundred
from tests.processes import Rows

#: Of these days of midnights the last are not there yet.
TODAY = "CREATE OR REPLACE FUNCTION celeriac.today() RETURNS date LANGUAGE sql AS $$ SELECT CAST('{}' AS date) $$"

DRAWN = "SELECT nextval('celeriac.tasks_id_seq')"

ENDED = text("""
INSERT INTO celeriac.history (id, task_id, role, account, status, priority, scheduled_for, args, kwargs, completed_at,
    retry_count, tries, max_rounds, losses, created_at, parent_id)
VALUES (:id, :task_id, 'work', 'a', 'completed', 0, :at, '[]', '{}', :at, 0, 0, 1, 0, :at, :parent)
""")

LOOKED_UP = text("""
SELECT (SELECT array_agg(id) FROM celeriac.history_with(ARRAY[CAST(:id AS bigint)])) = ARRAY[CAST(:id AS bigint)]
    AND (SELECT array_agg(id) FROM celeriac.history_named(ARRAY[:task_id])) = ARRAY[CAST(:id AS bigint)]
    AND EXISTS (SELECT FROM celeriac.created_between(:id - 1, :id))
    AND (SELECT count(*) FROM celeriac.tasks_with(ARRAY[CAST(:id AS bigint)])) = 1
    AND (:parent IS NULL OR EXISTS (SELECT FROM celeriac.history_under(CAST(:parent AS bigint)) WHERE id = :id))
""")

#: What happens: a midnight; the sweep; a task is enqueued, by a machine whose clock differs by so many days; the oldest
#: or the newest that has not ended ends; one that nobody enqueued here is written, with an id so far ahead.
STEPS = st.lists(
    st.one_of(
        st.just(("midnight", 0)),
        st.just(("sweep", 0)),
        st.tuples(st.just("enqueue"), st.sampled_from([0, 0, -1, 1, None])),
        st.tuples(st.just("end"), st.sampled_from([0, -1])),
        st.tuples(st.just("write"), st.sampled_from([0, 1000])),
    ),
    min_size=4,
    max_size=20,
)


class Midnights:
    """Steps in one transaction; `finished`: what each finished task is looked up by."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.finished = connection, list[dict[str, Any]]()
        self.waiting = list[dict[str, Any]]()
        self.now = datetime.combine(datetime.now(UTC).date(), time(12), UTC)
        self.midnight(-1)

    def midnight(self, days: int = 1) -> None:
        self.now += timedelta(days=days)
        self.connection.exec_driver_sql(TODAY.format(self.now.date()))

    def sweep(self) -> None:
        self.connection.execute(BEGIN_DAY)

    def enqueue(self, differs: int | None, ahead: int = 0) -> dict[str, Any]:
        number = int(self.connection.exec_driver_sql(DRAWN).scalar_one()) + ahead
        at = self.now + timedelta(days=differs or 0)
        made = f"{int(at.timestamp() * 1000):012x}"
        task_id = f"{made[:8]}-{made[8:]}-7000-8000-{number:012x}" if differs is not None else f"named-{number}"
        task = {"id": number, "task_id": task_id, "parent": 1 if number % 5 == 0 else None}
        self.waiting.append(task)
        return task

    def end(self, which: int) -> None:
        if self.waiting:
            task = self.waiting.pop(which)
            self.connection.execute(ENDED, task | {"at": self.now})
            self.finished.append(task)

    def write(self, ahead: int) -> None:
        self.enqueue(0, ahead * (len(self.finished) + 1))
        self.end(-1)


@settings(max_examples=of_a_hundred(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_what_has_ended_is_looked_up_whatever_midnights_pass(database: Database, steps: list[tuple[str, Any]]) -> None:
    with database.engine.connect() as connection:
        here = Midnights(connection)
        for step, how in steps:
            getattr(here, step)(*(() if step in ("midnight", "sweep") else (how,)))
        assert [t for t in here.finished if connection.execute(LOOKED_UP, t).scalar_one() is not True] == []


#: Made by the engine, they end on the day on which they were enqueued.
USUAL = """
WITH drawn AS (SELECT nextval('celeriac.tasks_id_seq') AS id FROM generate_series(1, 3))
INSERT INTO celeriac.worker_tasks (id, task_id, role, status) SELECT id, {}, 'work', 'completed' FROM drawn"""


@pytest.mark.parametrize(("task_id", "listed"), [("celeriac.fresh_id()", 0), ("gen_random_uuid()", 3)])
def test_what_ids_tell_is_not_listed(app: Celeriac, rows: Rows, task_id: str, listed: int) -> None:
    history.add_days(app)
    rows(USUAL.format(task_id))
    assert rows("SELECT count(*) FROM ended") == [(listed,)]
    assert rows("SELECT count(*) FROM history") == [(3,)]


def test_a_day_is_begun_once_with_nothing_set(app: Celeriac, rows: Rows) -> None:
    began = rows("SELECT day, first FROM days_begun")
    assert len(began) == 1
    rows(USUAL.format("celeriac.fresh_id()"))
    history.add_days(app)
    assert rows("SELECT day, first FROM days_begun") == began


@pytest.mark.parametrize("made", [
    "ffffffff-ffff-7fff-bfff-ffffffffffff", "00000000-0000-7000-8000-000000000000", "01a22e83-22af-7", "order 17", "",
    "01A22E83-22AF-7002-8A1E-49AC20622C0A", "01a22e83-22ag-7002-8a1e-49ac20622c0a", "01a22é83-22af-7002",
    "--------------7",
])  # fmt: skip
def test_any_id_can_be_looked_up(rows: Rows, made: str) -> None:
    assert rows("SELECT count(*) FROM celeriac.history_named(ARRAY[:made])", made=made) == [(0,)]


#: As many as a busy child settles at once, several times.
MANY_END = """
INSERT INTO celeriac.history (id, task_id, role, account, status, priority, scheduled_for, args, kwargs, completed_at,
    retry_count, tries, max_rounds, losses, created_at)
SELECT n, celeriac.fresh_id(), 'work', 'a', 'completed', 0, now(), '[]', '{}', clock_timestamp(), 0, 0, 1, 0, now()
FROM generate_series((SELECT last_value FROM celeriac.tasks_id_seq) + 1,
    (SELECT last_value FROM celeriac.tasks_id_seq) + 1000) AS n"""


def test_what_is_told_of_a_success_costs_little_beside_its_row(app: Celeriac) -> None:
    """Each task that ends is asked whether its id tells the day: a pattern of the id took half of its row's time."""
    history.add_days(app)
    took: dict[str, list[float]] = {"ENABLE": [], "DISABLE": []}
    with app.database.engine.connect() as connection:
        for state in 20 * ["ENABLE", "DISABLE"]:
            connection.exec_driver_sql(f"ALTER TABLE celeriac.history {state} TRIGGER history_listed")
            plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {MANY_END}").scalar_one()
            took[state].append(plan[0]["Execution Time"])
            connection.rollback()
    assert min(took["ENABLE"]) < 1.35 * min(took["DISABLE"])
