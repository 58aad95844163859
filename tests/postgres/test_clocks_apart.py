"""A caller whose clock is not the database's is told where it matters: at a call that gives an instant."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from celeriac import Celeriac
from celeriac.enqueue import clocks
from celeriac.insights.fleet import unfit
from celeriac.run import lease
from celeriac.run.lease import WorkerState
from celeriac.store.connections import Database
from celeriac.store.patience import patient
from tests.processes import Rows, until


def by_eta(task: Any, now: datetime) -> None:
    task.apply_async(eta=now + timedelta(minutes=1))


def by_expiry(task: Any, now: datetime) -> None:
    task.apply_async(expires=now + timedelta(minutes=1))


def by_bulk(task: Any, now: datetime) -> None:
    task.bulk([()], expires=now + timedelta(minutes=1))


def by_seconds(task: Any, _: datetime) -> None:
    task.apply_async(countdown=60, expires=120)


@pytest.mark.parametrize("ahead", [timedelta(minutes=5), timedelta(minutes=-5), timedelta()])
@pytest.mark.parametrize("call", [by_eta, by_expiry, by_bulk, by_seconds])
def test_an_instant_by_a_clock_that_differs_is_warned_of_once_in_a_while(
    app: Celeriac, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    call: Callable[..., None], ahead: timedelta,
) -> None:  # fmt: skip
    class Here(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Here:
            return cls.fromtimestamp((datetime.now(UTC) + ahead).timestamp(), tz)

    @app.task(role="work", shared=False, prompt=False)
    def work() -> None: ...

    monkeypatch.setattr(clocks, "datetime", Here)
    monkeypatch.setattr(clocks, "isinstance", lambda one, _: isinstance(one, datetime), raising=False)
    with caplog.at_level(logging.WARNING, clocks.__name__):
        call(work, datetime.now(UTC))
        call(work, datetime.now(UTC))
    said = [record.getMessage() for record in caplog.records if record.name == clocks.__name__]
    expected = {5: ["300 s ahead of"], -5: ["300 s behind"], 0: []}[ahead.total_seconds() // 60]
    if call is by_seconds:
        expected = []
    assert len(said) == len(expected)
    assert all(words in line for words, line in zip(expected, said, strict=True))


def test_a_heartbeat_that_waits_for_its_row_has_no_other_clock(database: Database, rows: Rows) -> None:
    state = WorkerState(worker_id="w", hostname="h", pid=1, queues=[], concurrency=1, resources={})

    def beat() -> None:
        with patient(None), database.transaction() as connection:
            lease.report(connection, state)

    beat()
    again, waited = threading.Thread(target=beat), 2.0
    with rows.engine.connect() as holder:
        holder.exec_driver_sql("BEGIN")
        holder.exec_driver_sql("SELECT FROM celeriac.workers FOR UPDATE")
        again.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        until(lambda: rows.one(waiting), "the heartbeat to wait")
        holder.exec_driver_sql(f"SELECT pg_sleep({waited})")
        holder.exec_driver_sql("COMMIT")
    again.join()
    with database.statement() as connection:
        (told,) = unfit.clocks(connection)
    assert abs(told.ahead) < waited / 2
