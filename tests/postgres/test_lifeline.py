"""The lifeline's looks: what it does while Postgres is away, and what wakes it."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac
from celeriac.errors import NotSettled
from celeriac.roles.role import Role
from celeriac.run import shared
from celeriac.run.interrupts import Thread
from celeriac.run.places import places
from celeriac.run.ticket import TicketRun
from celeriac.store.connections import Database
from celeriac.worker import lifeline as module
from celeriac.worker import overdue
from celeriac.worker.lifeline import Lifeline
from celeriac.worker.repairs import Repairs
from celeriac.worker.watchdog import Watchdog
from tests.postgres.conftest import new_task
from tests.postgres.stages import limit, running
from tests.processes import Rows, until


@pytest.fixture
def lifeline(app: Celeriac) -> Iterator[Lifeline]:
    lifeline = Lifeline(app, SimpleNamespace(pool=None, concurrency=1))
    yield lifeline
    lifeline.database.dispose()


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The processes that were killed, had they not been this one."""
    killed: list[int] = []
    monkeypatch.setattr(overdue, "kill", killed.append)
    yield killed
    limit(0, 0.0)


@pytest.mark.parametrize("ended", [False, True])
def test_what_is_past_its_limit_is_stopped_also_while_postgres_is_away(
    lifeline: Lifeline, killed: list[int], monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    away = Database("postgresql://nobody@127.0.0.1:1/none")
    real = away.transaction

    def transaction() -> Any:
        if ended:
            limit(0, 0.0)
        return real()

    monkeypatch.setattr(lifeline, "database", away)
    monkeypatch.setattr(away, "transaction", transaction)
    limit(4711, time.monotonic())
    with pytest.raises(DBAPIError):
        lifeline.look()
    assert killed == ([] if ended else [os.getpid()])


@pytest.fixture
def idle(lifeline: Lifeline) -> Lifeline:
    lifeline.settings = dataclasses.replace(lifeline.settings, poll_interval=60.0)
    lifeline.next_heartbeat = time.monotonic() + 60.0
    return lifeline


@pytest.mark.parametrize("happens", ["drain", "governed"])
def test_what_is_told_at_once_wakes_the_lifeline(idle: Lifeline, happens: str) -> None:
    waiting = threading.Thread(target=idle._wait, daemon=True)
    waiting.start()
    try:
        getattr(idle, happens)()
        waiting.join(5)
        assert not waiting.is_alive()
        idle.release_lost()
        assert not idle.lost, "no process was lost"
    finally:
        shared.drain(on=False)


def test_a_lost_child_wakes_the_lifeline_and_is_still_lost(idle: Lifeline) -> None:
    module.lost_process(4711)
    idle._wait()
    assert module._lost.get_nowait() == 4711


def test_a_ticket_that_broke_off_among_others_is_released(
    lifeline: Lifeline, app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process goes on, so that Postgres, back again, has to hear of it."""
    (task,) = running(database, new_task())
    monkeypatch.setattr(places, "kind", Thread)

    def start(again: bool) -> Any:
        raise NotSettled("Postgres stayed away")

    with pytest.raises(NotSettled):
        TicketRun(app, Role(name="work"), task.token, start).run()
    assert rows("SELECT status FROM worker_tasks") == [("running",)]
    lifeline.release_lost()
    assert rows("SELECT status, losses FROM worker_tasks") == [("pending", 1)]


def test_the_end_of_the_grace_period_is_waited_for(idle: Lifeline) -> None:
    began = time.monotonic()
    idle.drain_until = began + 0.2
    idle._wait()
    assert 0.2 <= time.monotonic() - began < 5


def test_a_worker_that_has_stopped_stays_so_and_its_threads_end(lifeline: Lifeline, rows: Rows) -> None:
    threads = [lifeline, lifeline.governor, Watchdog(lifeline), Repairs(lifeline.app, lifeline.ending)]
    for thread in threads:
        thread.start()
    states = "SELECT status FROM workers"
    until(lambda: rows(states) == [("active",)], "a heartbeat")
    try:
        lifeline.drain()
        until(lambda: rows(states) == [("draining",)], "it to drain")
        lifeline.stopped()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        assert rows(states) == [("stopped",)]
    finally:
        shared.drain(on=False)
        shared.back_off(on=False)
        shared.replace_idle(on=False)


@pytest.mark.parametrize(
    ("heartbeat", "stale_after", "gap"),
    [(0.3, 20.0, 5.0), (0.3, 3.0, 2.0), (1.0, 600.0, 5.0), (30.0, 600.0, 60.0)],
)
def test_who_is_late_on_a_busy_machine_has_not_been_kept_from_writing(
    lifeline: Lifeline, monkeypatch: pytest.MonkeyPatch, heartbeat: float, stale_after: float, gap: float
) -> None:
    """Else each such delay would make all leases count anew, and the dead would be rescued a whole lease later."""
    lifeline.settings = dataclasses.replace(lifeline.settings, heartbeat_interval=heartbeat)
    monkeypatch.setattr(lifeline, "lease", lambda: stale_after)
    assert lifeline.gap() == pytest.approx(gap)


@pytest.mark.parametrize(("silent", "noted"), [(2.0, 0), (9.0, 1)])
def test_a_heartbeat_notes_a_gap_by_that_measure(
    lifeline: Lifeline, monkeypatch: pytest.MonkeyPatch, rows: Rows, silent: float, noted: int
) -> None:
    lifeline.settings = dataclasses.replace(lifeline.settings, heartbeat_interval=0.3)
    monkeypatch.setattr(lifeline, "lease", lambda: 20.0)
    monkeypatch.setattr(Lifeline, "queues", lambda _: {"work"})
    lifeline.beat()
    rows("DELETE FROM repairs")
    rows("UPDATE workers SET last_heartbeat_at = now() - :ago * interval '1 s'", ago=silent)
    lifeline.beat()
    assert rows("SELECT count(*) FROM repairs WHERE name = 'gap'") == [(noted,)]


def test_of_many_workers_one_looks_in_a_period(lifeline: Lifeline, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is dead at the list's beginning is read by one of them; who finds it without a page writes nothing."""
    looked: list[bool] = []
    monkeypatch.setattr(module.look, "look", lambda _: looked.append(True) or ())
    lifeline.settings = dataclasses.replace(lifeline.settings, poll_interval=60.0)
    lifeline.look_around()
    assert (looked, rows("SELECT FROM repairs WHERE name = 'looks'")) == ([], [])
    rows("INSERT INTO looks (lock_key) VALUES ('a')")
    for _ in range(3):
        lifeline.look_around()
    assert looked == [True]
    rows("UPDATE repairs SET at = at - interval '1 min' WHERE name = 'looks'")
    lifeline.look_around()
    assert looked == [True, True]
    rows("DELETE FROM looks")
