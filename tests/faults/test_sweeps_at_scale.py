"""Sweeps beside a long history and a deep backlog: each batch is short, and a pass that finds nothing costs next to
nothing. Times are compared within one run, with what the same statement takes on small tables; `--full` also holds
them to the figures that are promised."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median, quantiles

import pytest
from sqlalchemy import Connection

from celeriac.dispatch import promote
from celeriac.repair import aging, prune
from celeriac.repair.aging import Aging
from celeriac.repair.batch import BATCH
from celeriac.settle import release
from celeriac.store.connections import Database
from tests.processes import Rows

AGING = Aging(after=3600, every=300, step=10, ceiling=49)

FINISHED = """
INSERT INTO worker_tasks (task_id, role, account, status, completed_at)
SELECT 'past-' || i, 'work', 'm' || i % 1000, 'completed', now() - :ago * interval '1 hour'
FROM generate_series(1, :n) i
"""
WAITING = """
INSERT INTO worker_tasks (task_id, role, account, scheduled_for)
SELECT 'ready-' || i, 'work', 'm' || i % 1000, now() - :ago * interval '1 hour' FROM generate_series(1, :n) i
"""
DUE = """
UPDATE worker_tasks SET waits_for = 'time' WHERE status = 'pending'
"""
SILENT = """
UPDATE worker_tasks SET status = 'running', token = gen_random_uuid(), claimed_at = now(), started_at = now(),
    worker_id = 'w', last_heartbeat_at = now() - interval '1 hour'
WHERE id IN (SELECT id FROM worker_tasks WHERE status = 'pending' LIMIT :n)
"""
ROLE = """INSERT INTO roles (role, definition) VALUES ('work', '{"keep": 7200, "stale_after": 600}')"""

SILENT_ROWS = 2000

Batch = Callable[[Connection], int]

VERBS: dict[str, Batch] = {
    "rescue": lambda c: len(
        release.release(c, release.stale(c, BATCH), status="running", kind="r", why="", by="t", loss=True)
    ),
    "promote": lambda c: promote.promote_due(c, "work", BATCH).count,
    "age": lambda c: aging.age(c, AGING, BATCH),
    "prune": lambda c: prune.tasks(c, 30, BATCH),
}
WORK = {"rescue": SILENT, "promote": DUE}


def timed(database: Database, batch: Batch, at_most: int = 10_000) -> tuple[list[float], int]:
    """Seconds of each batch until one is short, and how many rows they took."""
    took, done = [], 0
    for _ in range(at_most):
        began = time.perf_counter()
        with database.transaction() as connection:
            some = batch(connection)
        took.append(time.perf_counter() - began)
        done += some
        if some < BATCH:
            break
    return took, done


@pytest.fixture
def fill(rows: Rows, sized: Callable[[int, int], int]) -> Callable[[float, float], dict[str, int]]:
    """A history and a backlog of such ages (hours); how many rows each verb then has to take."""

    def fill(finished_ago: float, waiting_ago: float) -> dict[str, int]:
        finished, waiting = sized(1_000_000, 20_000), sized(100_000, 5_000)
        rows(ROLE)
        rows(FINISHED, n=finished, ago=finished_ago)
        rows(WAITING, n=waiting, ago=waiting_ago)
        rows("VACUUM ANALYZE worker_tasks")
        return {"rescue": SILENT_ROWS, "promote": waiting, "age": waiting, "prune": finished}

    return fill


def told(name: str, took: list[float], done: int) -> float:
    """The 99th percentile, in seconds."""
    p99 = quantiles(took, n=100)[98] if len(took) > 1 else took[0]
    print(f"{name}: {done} rows in {len(took)} batches, median {median(took) * 1000:.2f}, p99 {p99 * 1000:.2f} ms")
    return p99


def test_a_pass_that_finds_nothing_costs_next_to_nothing(
    fill: Callable[[float, float], dict[str, int]], database: Database, sized: Callable[[int, int], int]
) -> None:
    fill(1, 0.5)
    for name, batch in VERBS.items():
        passes = [timed(database, batch) for _ in range(50)]
        assert [done for _, done in passes] == [0] * 50
        took = [seconds for (seconds,), _ in passes]
        told(f"{name}, nothing to do", took, 0)
        if sized(1, 0):
            assert median(took) < 0.005


def test_each_batch_is_short_however_much_there_is(
    fill: Callable[[float, float], dict[str, int]], database: Database, rows: Rows, sized: Callable[[int, int], int]
) -> None:
    expected = fill(3, 2)
    for name, batch in VERBS.items():
        rows(WORK.get(name, "SELECT 1"), n=SILENT_ROWS)
        took, done = timed(database, batch)
        p99 = told(name, took, done)
        assert done == expected[name]
        if sized(1, 0):
            assert p99 < 0.1
