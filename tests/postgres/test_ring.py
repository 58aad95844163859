"""The ring of `ready`: dead entries that nobody may vacuum are left behind, whoever keeps an old transaction open."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, text

from celeriac import Celeriac
from celeriac.repair import ring
from celeriac.store.connections import Database
from tests.postgres.plans import explain
from tests.processes import Rows, until

FILL = """
WITH made AS (
    INSERT INTO tasks (task_id, role) SELECT gen_random_uuid(), 'work' FROM generate_series(1, :n) RETURNING *
)
INSERT INTO ready (seg, role, account, priority, due_at, id)
SELECT (SELECT seg FROM ring), role, account, priority, scheduled_for, id FROM made
"""

#: Entries that claims leave are dead, and in the way of the next; here their tasks are over at once.
GONE = """
WITH gone AS (
    DELETE FROM celeriac.ready WHERE id IN (SELECT id FROM celeriac.ready ORDER BY id LIMIT :n) RETURNING id
)
DELETE FROM celeriac.tasks WHERE id IN (SELECT id FROM gone)
"""

DEAD = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'ready_' || (SELECT seg FROM ring)"
SEGMENT = "SELECT seg FROM ring"
FIRST = text(
    "SELECT id FROM celeriac.ready WHERE role = 'work' AND account = '' ORDER BY priority DESC, due_at, id LIMIT 1"
)


@pytest.fixture
def worn(rows: Rows, old_transaction: Connection) -> None:
    """A segment with many dead entries and ten live ones."""
    rows(FILL, n=ring.MANY + 2_010)
    rows(GONE, n=ring.MANY + 2_000)
    until(lambda: rows.one(DEAD) > ring.MANY, "the statistics to be told")  # type: ignore[operator]


@pytest.mark.usefixtures("worn")
def test_under_an_old_transaction_the_ring_turns_and_claims_meet_no_dead_entry(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    with database.transaction() as connection:
        before = explain(connection, FIRST).pages
    assert ring.turn(app) == 10
    assert rows(SEGMENT) == [(1,)]
    assert rows("SELECT count(*), min(seg) FROM ready") == [(10, 1)]
    assert rows.one("SELECT pg_relation_size('ready_0')") == 0
    with database.transaction() as connection:
        assert explain(connection, FIRST).pages < before / 5


def test_what_is_not_worn_does_not_turn(app: Celeriac, rows: Rows) -> None:
    rows(FILL, n=100)
    rows(GONE, n=90)
    assert ring.turn(app) == 0
    assert rows(SEGMENT) == [(0,)]


@pytest.mark.usefixtures("worn")
def test_somebody_who_reads_a_sealed_segment_holds_up_its_truncation_and_nothing_else(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    with database.transaction() as reader:
        reader.exec_driver_sql("SELECT count(*) FROM celeriac.ready_0")
        assert ring.turn(app) == 10
        assert rows.one("SELECT pg_relation_size('ready_0') > 0")
        rows(FILL, n=1)
    assert ring.turn(app) == 0
    assert rows("SELECT count(*), min(seg), pg_relation_size('ready_0') FROM ready") == [(11, 1, 0)]


@pytest.mark.usefixtures("worn")
def test_what_is_inserted_into_a_sealed_segment_is_not_truncated(app: Celeriac, database: Database, rows: Rows) -> None:
    """Its statement read the ring before the seal."""
    with database.transaction() as late:
        late.exec_driver_sql("INSERT INTO celeriac.tasks (id, task_id, role) VALUES (1000000, 'late', 'work')")
        late.exec_driver_sql(
            "INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id)"
            " SELECT 0, role, account, priority, scheduled_for, id FROM celeriac.tasks WHERE id = 1000000"
        )
        ring.turn(app)
    assert rows("SELECT seg FROM ready WHERE id = 1000000") == [(0,)]
    assert ring.turn(app) == 1
    assert rows("SELECT seg FROM ready WHERE id = 1000000") == [(1,)]


@pytest.mark.usefixtures("worn")
def test_an_entry_somebody_claims_just_now_is_not_moved(app: Celeriac, database: Database, rows: Rows) -> None:
    with database.transaction() as claims:
        claims.execute(text(GONE), {"n": 1})
        assert ring.turn(app) == 9
    assert rows("SELECT count(*) FROM ready") == [(9,)]


@pytest.mark.usefixtures("worn")
def test_who_takes_the_current_segment_for_a_sealed_one_moves_nothing(app: Celeriac, rows: Rows) -> None:
    """It read the ring's state before others turned it: a move into itself would have no end."""
    assert ring.empty(app.database, app.kick, 0) == 0
    assert rows("SELECT count(*), min(seg), pg_relation_size('ready_0') > 0 FROM ready") == [(10, 0, True)]
    rows("DELETE FROM ready")
    rows("DELETE FROM tasks")
    assert ring.empty(app.database, app.kick, 0) == 0
    assert rows.one("SELECT pg_relation_size('ready_0') > 0"), "what is current is not truncated, either"


@pytest.mark.usefixtures("worn")
def test_of_many_workers_one_a_second_turns_it(app: Celeriac, rows: Rows) -> None:
    rows("INSERT INTO repairs (name, at) VALUES ('ring', now())")
    assert ring.turn_by_worker(app.database, app.kick) == 0
    rows("UPDATE repairs SET at = at - interval '1 s'")
    assert ring.turn_by_worker(app.database, app.kick) == 10
    assert rows.one("SELECT at > now() - interval '1 min' FROM repairs WHERE name = 'ring'")


@pytest.mark.usefixtures("worn")
def test_workers_leave_a_ring_alone_whose_schedule_is_switched_off(app: Celeriac, rows: Rows) -> None:
    rows(
        "INSERT INTO scheduled_jobs (name, kind, target, cron_expression, enabled)"
        " VALUES ('sweep ring', 'sweep', 'ring', '@every 30s', false)"
    )
    assert ring.turn_by_worker(app.database, app.kick) == 0
    assert rows(SEGMENT) == [(0,)]


@pytest.mark.parametrize(
    ("dead", "live", "kept", "turns"),
    [
        (6_000, 10, 0.0, True),
        (600_000, 3_000_000, 0.0, False),
        (600_000, 3_000_000, ring.KEPT + 1, True),
        (600_000, 10_000_000, ring.KEPT + 1, False),
    ],
    ids=["few live ones", "vacuum comes", "somebody keeps the dead", "a turn costs more"],
)
def test_many_live_entries_move_only_where_the_dead_cannot_be_removed(
    dead: int, live: int, kept: float, turns: bool
) -> None:
    assert ring.State(0, dead, live, [1, 0, 0], kept).is_worn is turns


@pytest.mark.usefixtures("worn")
def test_whoever_keeps_the_dead_is_seen(app: Celeriac, database: Database) -> None:
    with database.statement() as connection:
        first = connection.execute(ring.STATE).one().kept
        until(lambda: connection.execute(ring.STATE).one().kept > first > 0, "the old transaction to grow older")


VACUUMED = """SELECT relname FROM pg_class WHERE relnamespace = 'celeriac'::regnamespace AND relkind = 'r'
    AND array_to_string(reloptions, ',') LIKE '%%autovacuum_vacuum_scale_factor%%'"""


def test_what_loses_rows_at_the_pace_of_tasks_is_vacuumed_sooner_than_usual(rows: Rows) -> None:
    set_for = {name for (name,) in rows(VACUUMED)}
    assert set_for >= {
        "tasks",
        "ready_0",
        "ready_1",
        "ready_2",
        "later",
        "behind",
        "locks",
        "looks",
        "tickets",
        "ended",
    }


def test_a_ring_at_rest_is_read_and_nothing_is_written(app: Celeriac, rows: Rows) -> None:
    rows(FILL, n=100)
    assert ring.turn_by_worker(app.database, app.kick) == 0
    assert rows("SELECT FROM repairs") == []
