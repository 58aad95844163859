"""A lease counts only time in which it could be renewed: after a gap in which nobody could write, it starts anew."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from celeriac import Celeriac, Settings, above
from celeriac.repair.rescue import rescue
from celeriac.run import lease, shared
from celeriac.schedules import tick
from celeriac.store.connections import Database
from celeriac.worker.repairs import Repairs
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

WORKER = """INSERT INTO celeriac.workers (worker_id, hostname, pid, queues, concurrency, started_at, last_heartbeat_at)
    VALUES (:name, 'here', 7, '["work"]', 1, now() - interval '1 hour', now() - :ago * interval '1 s')"""

BEAT = """INSERT INTO celeriac.beats (beat_id, hostname, pid, started_at, last_tick_at)
    VALUES ('b', 'here', 8, now() - interval '1 hour', now() - :ago * interval '1 s')"""


def beat_ticks(database: Database) -> None:
    with database.statement() as connection:
        tick.report(connection, "b", "here", 8, 0.0)


def other_worker_reports(database: Database) -> None:
    with database.transaction() as connection:
        lease.note_gap(connection, "other", 7, 2 * LEASE / 3)


def newcomer_reports(database: Database) -> None:
    """A worker that has never reported before."""
    state = lease.WorkerState(
        worker_id="newcomer", hostname="there", pid=9, queues=["work"], concurrency=1, resources={}
    )
    with database.transaction() as connection:
        lease.note_gap(connection, state.worker_id, state.pid, 2 * LEASE / 3)
        lease.report(connection, state)


def new_beat_ticks(database: Database) -> None:
    with database.statement() as connection:
        tick.report(connection, "new", "there", 9, 0.0)


NEWCOMERS: list[Callable[[Database], None]] = [newcomer_reports, new_beat_ticks]


def other_worker_repairs(database: Database) -> None:
    """Its thread of repairs may come before its heartbeat."""
    app = SimpleNamespace(settings=Settings(), database=database)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shared, "worker_id", lambda: "other")
        patched.setattr(os, "getpid", lambda: 7)
        repairs = Repairs(app, threading.Event(), lambda: 2 * LEASE / 3)  # type: ignore[arg-type]
        patched.setattr(above, "load", lambda _: lambda _: None)
        repairs.look(repairs.due)


WRITERS: list[Callable[[Database], None]] = [beat_ticks, other_worker_reports, other_worker_repairs]


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


@pytest.mark.parametrize("comes", NEWCOMERS)
@pytest.mark.parametrize("returns", WRITERS)
def test_a_newcomer_that_writes_first_takes_nothing_from_those_who_are_about_to(
    app: Celeriac, database: Database, rows: Rows, running: Callable[[float], None],
    comes: Callable[[Database], None], returns: Callable[[Database], None],
) -> None:  # fmt: skip
    """As after a failover in which beat was started anew: it cannot know that nobody else could write."""
    running(LEASE + 12)
    comes(database)
    assert rescue(app) == 0
    returns(database)
    rows("UPDATE celeriac.repairs SET at = at - interval '1 minute' WHERE name = 'newcomer'")
    assert rescue(app) == 0
    assert rows("SELECT status, losses FROM worker_tasks") == [("running", 0)]


@pytest.mark.parametrize("comes", NEWCOMERS)
def test_those_who_do_not_come_back_within_a_lease_of_a_newcomers_first_report_are_dead(
    app: Celeriac, database: Database, rows: Rows, running: Callable[[float], None], comes: Callable[[Database], None]
) -> None:
    """Also if newcomers crash again and again."""
    running(LEASE + 12)
    comes(database)
    rows("UPDATE celeriac.repairs SET at = at - :lease * interval '1 s' WHERE name = 'newcomer'", lease=LEASE + 1)
    rows("DELETE FROM celeriac.beats WHERE beat_id = 'new'")
    rows("DELETE FROM celeriac.workers WHERE worker_id = 'newcomer'")
    comes(database)
    assert rescue(app) == 1


@pytest.mark.parametrize("comes", NEWCOMERS)
def test_a_newcomer_among_those_who_are_well_changes_nothing(
    app: Celeriac, database: Database, rows: Rows, running: Callable[[float], None], comes: Callable[[Database], None]
) -> None:
    running(LEASE + 12)
    rows("UPDATE celeriac.beats SET last_tick_at = now()")
    comes(database)
    assert rescue(app) == 1
