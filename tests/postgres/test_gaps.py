"""A lease counts only time in which it could be renewed: after a gap in which nobody could write, it starts anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac import Celeriac
from celeriac.repair.rescue import rescue
from celeriac.run import lease
from celeriac.schedules import tick
from celeriac.store.connections import Database
from tests.postgres.finished import registered
from tests.processes import Rows

LEASE = 20

#: As of a standby, which has answered for long when it takes over.
UP = """CREATE OR REPLACE FUNCTION celeriac.up_since() RETURNS timestamptz LANGUAGE sql STABLE
    AS $$ SELECT now() - interval '1 day' $$"""

RUNNING = """INSERT INTO worker_tasks (task_id, role, status, token, claimed_at, started_at, last_heartbeat_at,
        worker_id, worker_pid)
    VALUES ('a', 'work', 'running', gen_random_uuid(), now() - :ago * interval '1 s', now() - :ago * interval '1 s',
        now() - :ago * interval '1 s', 'w', 7)"""

WORKER = """INSERT INTO celeriac.workers (worker_id, hostname, pid, queues, concurrency, last_heartbeat_at)
    VALUES (:name, 'here', 7, '["work"]', 1, now() - :ago * interval '1 s')"""

BEAT = """INSERT INTO celeriac.beats (beat_id, hostname, pid, last_tick_at)
    VALUES ('b', 'here', 8, now() - :ago * interval '1 s')"""


def beat_ticks(database: Database) -> None:
    with database.statement() as connection:
        tick.report(connection, "b", "here", 8, 0.0)


def other_worker_reports(database: Database) -> None:
    with database.transaction() as connection:
        lease.note_gap(connection, "other", 7, 2 * LEASE / 3)


WRITERS: list[Callable[[Database], None]] = [beat_ticks, other_worker_reports]


@pytest.fixture
def running(rows: Rows) -> Callable[[float], None]:
    """A task whose heartbeat was so long ago, as were all others'."""

    def run(ago: float) -> None:
        registered(rows, "work")
        rows(f"UPDATE celeriac.roles SET definition = definition || '{{\"stale_after\": {LEASE}}}'")
        rows(UP)
        rows(RUNNING, ago=ago)
        rows(BEAT, ago=ago - 2)
        for name in ("w", "other"):
            rows(WORKER, name=name, ago=ago - 1)

    return run


@pytest.mark.parametrize("writes", WRITERS)
def test_after_an_outage_longer_than_the_lease_nothing_is_taken_away(
    app: Celeriac, database: Database, rows: Rows, running: Callable[[float], None], writes: Callable[[Database], None]
) -> None:
    running(LEASE + 12)
    writes(database)
    assert rescue(app) == 0
    assert rows("SELECT status, losses FROM worker_tasks") == [("running", 0)]


@pytest.mark.parametrize("writes", WRITERS)
def test_who_is_silent_for_a_whole_lease_after_it_is_rescued(
    app: Celeriac, database: Database, rows: Rows, running: Callable[[float], None], writes: Callable[[Database], None]
) -> None:
    running(LEASE + 12)
    writes(database)
    rows("UPDATE celeriac.repairs SET at = at - :lease * interval '1 s' WHERE name = 'gap'", lease=LEASE + 1)
    assert rescue(app) == 1
    assert rows("SELECT status, losses FROM worker_tasks") == [("pending", 1)]


@pytest.mark.parametrize("who", ["the beat", "another worker"])
def test_where_others_could_write_a_silent_worker_is_dead(
    app: Celeriac, database: Database, rows: Rows, running: Callable[[float], None], who: str
) -> None:
    running(LEASE + 12)
    if who == "the beat":
        rows("UPDATE celeriac.beats SET last_tick_at = now() - interval '1 s'")
        other_worker_reports(database)
    else:
        rows("UPDATE celeriac.workers SET last_heartbeat_at = now() - interval '1 s' WHERE worker_id = 'other'")
        beat_ticks(database)
    assert rescue(app) == 1


def test_a_beat_that_starts_knows_of_no_gap(
    app: Celeriac, database: Database, rows: Rows, running: Callable[[float], None]
) -> None:
    """Else one that crashes again and again would keep the dead from being rescued."""
    running(LEASE + 12)
    rows("DELETE FROM celeriac.beats")
    beat_ticks(database)
    assert rescue(app) == 1
