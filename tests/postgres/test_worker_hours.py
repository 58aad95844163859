"""An hour of a worker: samples beside its heartbeats, one a minute, and what it did."""

from __future__ import annotations

import math
from typing import Any

import pytest

from celeriac import Celeriac, __version__, insights
from celeriac.insights import Count
from celeriac.repair import sweep
from celeriac.run.lease import WorkerState
from celeriac.run.reported import report, sample
from celeriac.store.connections import Database
from celeriac.worker.lifeline import Lifeline
from celeriac.worker.resources import Sampler
from tests.postgres.finished import finished, registered
from tests.postgres.test_lifeline import lifeline
from tests.processes import Rows

__all__ = ["lifeline"]

SAMPLES = "SELECT memory_percent, cpu_percent, backoff_reason FROM celeriac.worker_samples ORDER BY minute, worker_id"


def state(name: str = "w", **resources: Any) -> WorkerState:
    return WorkerState(worker_id=name, hostname="h", pid=1, queues=[], concurrency=1, resources=resources)


class Counted:
    """A connection that counts its statements."""

    def __init__(self, connection: Any) -> None:
        self.connection, self.n = connection, 0

    def execute(self, *given: Any) -> Any:
        self.n += 1
        return self.connection.execute(*given)


def test_a_heartbeat_has_a_sample_once_a_minute_and_where_a_back_off_begins(database: Database) -> None:
    now = [0.0]
    sampler = Sampler(lambda: now[0])
    written = []
    for at, backs_off in ((60, False), (61, False), (90, True), (100, True), (110, False), (115, True), (120, False)):
        now[0] = at
        with database.transaction() as connection:
            counted: Any = Counted(connection)
            assert sampler.report(counted, state(is_backing_off=backs_off)) == "active"
        written.append(counted.n - 1)
    assert written == [1, 0, 1, 0, 0, 0, 1]


def test_a_minute_keeps_that_it_had_a_back_off(database: Database, rows: Rows) -> None:
    rows("""INSERT INTO celeriac.worker_samples
        SELECT 'w', date_trunc('minute', now()) + i * interval '1 minute', 1, 1 FROM generate_series(0, 1) i""")
    backs_off = {"is_backing_off": True, "backoff_reason": "Memory at 87 %", "memory_percent": 87.0}
    for told in (backs_off, {"cpu_percent": 2}):
        with database.transaction() as connection:
            sample(connection, "w", told)
    assert (87.0, None, "Memory at 87 %") in rows(SAMPLES)
    assert len(rows(SAMPLES)) == 2


@pytest.mark.parametrize("told", ["high", None, True, math.nan, math.inf, 10**4000, [1]])
def test_what_no_chart_can_draw_is_unknown(database: Database, rows: Rows, told: Any) -> None:
    given = {"memory_percent": told, "cpu_percent": -5, "is_backing_off": 1, "backoff_reason": "\x00" * 999}
    with database.transaction() as connection:
        sample(connection, "w", given)
    assert rows(SAMPLES) == [(None, 0.0, "")]


def test_a_worker_samples_itself_with_its_release(lifeline: Lifeline, rows: Rows) -> None:
    lifeline.governor.check()
    lifeline.beat()
    ((memory, cpu, reason),) = rows(SAMPLES)
    assert 0 < memory <= 1000
    assert cpu is not None
    assert reason is None
    assert rows.one("SELECT version FROM celeriac.workers") == __version__


def test_one_that_is_reported_over_http_has_an_hour_as_well(database: Database) -> None:
    for _ in range(3):
        with database.transaction() as connection:
            report(connection, state("other", memory_percent=12.5), by="token")
    with database.reading() as connection:
        found = insights.worker_hour(connection, "other")
    assert {(one.memory_percent, one.cpu_percent) for one in found} == {(12.5, None)}
    assert len(found) <= 2, "a minute may have ended"


def test_an_hour_is_told_in_order_and_what_is_older_is_pruned(app: Celeriac, database: Database, rows: Rows) -> None:
    rows("""INSERT INTO celeriac.worker_samples
        SELECT w, date_trunc('minute', now()) - i * interval '1 minute', i, i
        FROM generate_series(0, 199) i, unnest(ARRAY['w', 'x']) w""")
    with database.reading() as connection:
        found = insights.worker_hour(connection, "w")
    assert [one.memory_percent for one in found] == [float(i) for i in range(len(found) - 1, -1, -1)]
    assert len(found) in (60, 61)
    sweep(app, "prune")
    left = rows.one("SELECT count(*) FROM celeriac.worker_samples WHERE minute < now() - interval '2 hours 1 minute'")
    assert left == 0
    assert rows.one("SELECT count(*) FROM celeriac.worker_samples") in (238, 240, 242)


def test_what_each_worker_did_is_of_the_newest_of_each_role(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(rows, "a", "b")
    finished(rows, "a", n=1)
    rows("UPDATE celeriac.history SET worker_id = 'x'")
    finished(rows, "a", n=3)
    finished(rows, "b", "failed", n=2)
    finished(rows, "b", n=4, ago=61)
    with database.reading() as connection:
        assert insights.done_by_worker(connection) == {"w": Count(5), "x": Count(1)}
        monkeypatch.setattr("celeriac.insights.fleet.hours.NEWEST", 2)
        bounded = insights.done_by_worker(connection)
    assert sum(count.n for count in bounded.values()) == 4
    assert not any(count.exact for count in bounded.values())
