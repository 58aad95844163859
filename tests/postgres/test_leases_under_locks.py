"""A row that somebody has locked costs a worker that is well none of its tasks: its lease counts from the heartbeat."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from celeriac import Celeriac, insights
from celeriac.insights.fleet import condition
from celeriac.repair.rescue import rescue
from celeriac.run import shared
from celeriac.store.connections import Database
from celeriac.store.patience import patient
from celeriac.worker.lifeline import Lifeline
from tests.postgres.conftest import new_task
from tests.postgres.finished import registered
from tests.postgres.stages import claimed, enqueued
from tests.processes import Rows

LEASE, PID = 20.0, 4711


@pytest.fixture
def lifeline(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lifeline]:
    lifeline = Lifeline(app, SimpleNamespace(pool=None, concurrency=1))
    lifeline.settings = dataclasses.replace(lifeline.settings, heartbeat_interval=3.0)
    monkeypatch.setattr(Lifeline, "lease", lambda _: LEASE)
    monkeypatch.setattr(Lifeline, "queues", lambda _: {"work"})
    monkeypatch.setattr(Lifeline, "processes", lambda _: [PID])
    yield lifeline
    lifeline.database.dispose()


@pytest.fixture
def silent(database: Database, rows: Rows, lifeline: Lifeline) -> int:
    """The id of a task of this worker whose lease was renewed last long ago; its role's is over."""
    registered(rows, "work")
    rows("UPDATE roles SET definition = definition || jsonb_build_object('stale_after', :s)", s=LEASE)
    enqueued(database, new_task())
    (task,), token = claimed(database)
    lifeline.beat()
    rows(
        """UPDATE tickets SET worker_id = :me, worker_pid = :pid, started_at = now() - interval '1 min',
            claimed_at = now() - interval '1 min', heartbeat_at = now() - interval '1 min'
        WHERE token = CAST(:token AS uuid)""",
        me=shared.worker_id(), pid=PID, token=token,
    )  # fmt: skip
    rows("UPDATE workers SET last_heartbeat_at = now() - interval '1 min'")
    return task


LOCKS: dict[str, str] = {
    "its row": "UPDATE celeriac.worker_tasks SET priority = 7 WHERE status = 'running'",
    "its ticket": "SELECT FROM celeriac.tickets FOR UPDATE",
    "all tickets": "LOCK TABLE celeriac.tickets IN SHARE MODE",
    "its worker": "SELECT FROM celeriac.workers FOR UPDATE",
    "all workers": "LOCK TABLE celeriac.workers IN SHARE MODE",
}


@pytest.mark.parametrize("what", LOCKS)
def test_a_healthy_worker_loses_no_task_to_the_rescue_while_somebody_has_it_locked(
    app: Celeriac, database: Database, rows: Rows, lifeline: Lifeline, silent: int, what: str
) -> None:
    rows(
        "INSERT INTO beats (beat_id, hostname, pid, started_at) VALUES ('b', 'here', 8, now() - interval '1 hour')"
    )  # so that there is no gap
    with database.transaction() as other, patient(0.2):
        other.exec_driver_sql(LOCKS[what])
        lifeline.beat()
        if what != "all tickets":
            assert rescue(app) == 0
    assert rescue(app) == 0
    assert rows("SELECT status, losses FROM worker_tasks") == [("running", 0)]
    with database.statement() as connection:
        assert condition.silent_workers(connection) == []
        assert insights.depth(connection, "work")[0].stale == 0


Dies = Callable[[Rows, Lifeline, pytest.MonkeyPatch], object]
DEAD: dict[str, Dies] = {
    "its worker": lambda *_: None,
    "its process": lambda _, lifeline, monkeypatch: (
        monkeypatch.setattr(Lifeline, "processes", lambda _: [PID + 1]),
        lifeline.beat(),
    ),
    "its worker, which says so": lambda rows, lifeline, _: (
        lifeline.beat(),
        rows("UPDATE tickets SET heartbeat_at = now() - interval '1 min'"),
        rows("UPDATE workers SET status = 'stopped'"),
    ),
}


@pytest.mark.parametrize("what", DEAD)
def test_what_is_dead_is_rescued_all_the_same(
    app: Celeriac, rows: Rows, lifeline: Lifeline, silent: int, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    rows("INSERT INTO beats (beat_id, hostname, pid, started_at) VALUES ('b', 'here', 8, now() - interval '1 hour')")
    DEAD[what](rows, lifeline, monkeypatch)
    assert rescue(app) == 1


def test_one_task_that_is_locked_keeps_no_other_from_being_rescued(
    app: Celeriac, database: Database, rows: Rows, silent: int, lifeline: Lifeline
) -> None:
    rows("INSERT INTO beats (beat_id, hostname, pid, started_at) VALUES ('b', 'here', 8, now() - interval '1 hour')")
    enqueued(database, new_task())
    _, token = claimed(database)
    rows("UPDATE tickets SET worker_id = 'w', worker_pid = 1, started_at = claimed_at, heartbeat_at = '2020-01-01' "
         "WHERE token = CAST(:token AS uuid)", token=token)  # fmt: skip
    with database.transaction() as other:
        other.exec_driver_sql(f"SELECT FROM celeriac.tasks WHERE id = {silent} FOR UPDATE")
        assert rescue(app) == 1
        assert rows("SELECT id FROM worker_tasks WHERE status = 'running'") == [(silent,)]
    assert rescue(app) == 1
