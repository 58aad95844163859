"""A worker's thread of repairs: the outbox and the ring at each look, the vital repairs every so often."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest
from sqlalchemy.exc import OperationalError

from celeriac import Celeriac, Settings, above
from celeriac.enqueue import outbox
from celeriac.run import lease
from celeriac.store.connections import Database
from celeriac.worker.repairs import Repairs
from tests.postgres.conftest import new_task
from tests.postgres.stages import running
from tests.processes import Rows, until


@pytest.fixture
def silent(database: Database, rows: Rows) -> None:
    """A task whose worker fell silent."""
    running(database, new_task())
    rows("UPDATE tickets SET heartbeat_at = now() - interval '1 day'")


@pytest.fixture
def without_postgres(redis_url: str) -> Iterator[Celeriac]:
    settings = Settings(database_url="postgresql://nobody@127.0.0.1:1/none", redis_url=redis_url)
    app = Celeriac("test", settings=settings, set_as_current=False)
    yield app
    app.publisher.close()


@pytest.mark.usefixtures("silent")
def test_what_fell_silent_is_rescued_once_an_interval_is_over(app: Celeriac, rows: Rows) -> None:
    thread = Repairs(app, threading.Event())
    thread.look(thread.due - 1)
    assert rows("SELECT status FROM worker_tasks") == [("running",)]
    thread.look(thread.due)
    assert rows("SELECT status, losses FROM worker_tasks") == [("pending", 1)]


@pytest.mark.usefixtures("silent")
def test_a_worker_that_starts_reviews_before_it_looks(app: Celeriac, rows: Rows) -> None:
    ending = threading.Event()
    ending.set()
    Repairs(app, ending).run()
    assert rows("SELECT status, losses FROM worker_tasks") == [("pending", 1)]


@pytest.mark.usefixtures("silent")
def test_nothing_is_reviewed_where_a_gap_could_not_be_noted(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise OperationalError("", {}, psycopg2.OperationalError("server closed the connection unexpectedly"))

    monkeypatch.setattr(lease, "note_gap", gone)
    ending = threading.Event()
    ending.set()
    Repairs(app, ending).run()
    assert rows("SELECT status, losses FROM worker_tasks") == [("running", 0)]


@pytest.mark.usefixtures("silent")
def test_a_review_that_failed_comes_an_interval_later(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One passing error as a worker starts is no reason to review nothing for all of its life."""
    noted, failures = lease.note_gap, iter([OperationalError("", {}, psycopg2.OperationalError("gone for a moment"))])

    def once_gone(*given: Any) -> None:
        for error in failures:
            raise error
        noted(*given)

    monkeypatch.setattr(lease, "note_gap", once_gone)
    ending = threading.Event()
    thread = Repairs(app, ending)
    thread.every, thread.due = 0.1, math.inf
    thread.start()
    try:
        until(lambda: rows("SELECT status FROM worker_tasks") == [("pending",)], "the review")
        assert [*failures] == [], "it failed at first"
    finally:
        ending.set()
        thread.join()


@pytest.mark.usefixtures("silent")
def test_the_next_repairs_come_an_interval_later(app: Celeriac, rows: Rows) -> None:
    thread = Repairs(app, threading.Event())
    first = thread.due
    thread.look(first)
    assert thread.due == first + app.settings.sweep_interval


def test_what_is_in_the_outbox_is_admitted_and_its_role_told(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    kicked: list[str] = []
    monkeypatch.setattr(app, "kick", kicked.extend)
    with database.transaction() as connection:
        outbox.put(connection, [new_task("work")])
    Repairs(app, threading.Event()).look(0.0)
    assert rows("SELECT role FROM worker_tasks") == [("work",)]
    assert kicked == ["work"]


@pytest.mark.usefixtures("silent")
def test_one_that_fails_keeps_no_other_from_being_tried(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(above, "TURN_OF_THE_RING", "celeriac.repair.ring:of_another_release")
    thread = Repairs(app, threading.Event())
    thread.turn()
    thread.look(thread.due)
    assert rows("SELECT status FROM worker_tasks") == [("pending",)]
    assert "A repair failed; it is tried again" in caplog.text


def test_a_postgres_that_is_away_is_told_of_in_one_line_for_many_looks(
    without_postgres: Celeriac, caplog: pytest.LogCaptureFixture
) -> None:
    thread = Repairs(without_postgres, threading.Event())
    for _ in range(3):
        thread.look(thread.due)
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert record.getMessage().startswith("Waiting for Postgres: ")
