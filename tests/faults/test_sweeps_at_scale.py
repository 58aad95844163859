"""Sweeps beside a long history and a deep backlog: each batch is short, and a pass that finds nothing costs next to
nothing. Times are compared within one run, with what the same statement takes on small tables; `--full` also holds
them to the figures that are promised.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection

from celeriac.dispatch import promote
from celeriac.repair import aging, prune
from celeriac.repair.aging import FIRST, LEVELS, Aging
from celeriac.repair.batch import BATCH
from celeriac.repair.rescue import TICKETS
from celeriac.settle import release
from celeriac.store.connections import Database
from tests.processes import Rows

AGING = Aging(after=3600, every=300, step=10, ceiling=49)
ACCOUNTS = 1000

FINISHED = """
INSERT INTO celeriac.history (id, task_id, role, account, status, completed_at, priority, scheduled_for, args, kwargs,
    retry_count, tries, max_rounds, losses, created_at)
SELECT nextval('celeriac.tasks_id_seq'), 'past-' || i, 'work', 'm' || i % 1000, 'completed', at, 0, at, '[]', '{}',
    0, 0, 1, 0, at
FROM generate_series(1, :n) i, LATERAL (SELECT now() - :ago * interval '1 hour') AS finished (at)
"""
WAITING = """
WITH t AS (
    INSERT INTO celeriac.tasks (task_id, role, account, scheduled_for)
    SELECT 'ready-' || i, 'work', 'm' || i % 1000, now() - :ago * interval '1 hour' FROM generate_series(1, :n) i
    RETURNING *
)
INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id)
SELECT 0, role, account, priority, scheduled_for, id FROM t
"""
DUE = """
WITH gone AS (DELETE FROM celeriac.ready RETURNING *)
INSERT INTO celeriac.later (role, account, due_at, id) SELECT role, account, due_at, id FROM gone
"""
SILENT = """
WITH gone AS (
    DELETE FROM celeriac.ready WHERE id IN (SELECT id FROM celeriac.ready ORDER BY role, account LIMIT :n) RETURNING *
)
INSERT INTO celeriac.tickets (token, role, ids, accounts, worker_id, started_at, heartbeat_at)
SELECT gen_random_uuid(), role, ARRAY[id], ARRAY[account], 'w', now(), now() - interval '1 hour' FROM gone
"""
ROLE = """INSERT INTO celeriac.roles (role, definition) VALUES ('work', '{"keep": 7200, "stale_after": 600}')"""
ROOMS = ", ".join(f"celeriac.{room}" for room in ("tasks", "ready", "later", "tickets", "history"))

SILENT_ROWS = 2000

#: A transaction of a sweep, from where the one before ended: how many rows it took, and where the next one goes on.
Batch = Callable[[Connection, Any], tuple[int, Any]]


def rescue(connection: Connection, _: Any) -> tuple[int, Any]:
    tokens = [one.token for one in release.stale(connection, TICKETS)]
    freed = release.release(connection, tokens, started=True, kind="r", why="", by="t", loss=True)
    return len(freed), len(tokens) == TICKETS or None


def promote_due(connection: Connection, _: Any) -> tuple[int, Any]:
    count = promote.promote_due(connection, "work", BATCH).count
    return count, count >= BATCH or None


def age(connection: Connection, after: Any) -> tuple[int, Any]:
    return aging.age(connection, AGING, after or FIRST)


def prune_role(connection: Connection, after: Any) -> tuple[int, Any]:
    kept = {row.role: row.since for row in connection.execute(prune.KEPT, {"days": 30, "undeclared": []})}
    day = {"began": "-infinity", "ended": "infinity"}
    wanted = {"role": "work", "since": kept["work"], "after": after, "batch": BATCH} | day
    done = connection.execute(prune.TASKS, wanted).one()
    return done.n, done.until if done.n == BATCH else None


VERBS: dict[str, Batch] = {"rescue": rescue, "promote": promote_due, "age": age, "prune": prune_role}
WORK = {"rescue": SILENT, "promote": DUE}

#: Batches of a pass that finds nothing, where it is not one: aging looks at each account's tasks.
WALKS = {"age": ACCOUNTS // LEVELS + 1}


def timed(database: Database, batch: Batch) -> tuple[list[float], int]:
    """Seconds of each batch of a sweep to its end, and how many rows they took."""
    took: list[float] = []
    done, place = 0, None
    while not took or place is not None:
        began = time.perf_counter()
        with database.transaction() as connection:
            some, place = batch(connection, place)
        took.append(time.perf_counter() - began)
        done += some
    return took, done


@pytest.fixture
def fill(rows: Rows, sized: Callable[[int, int], int]) -> Callable[[float, float], dict[str, int]]:
    """A history and a backlog of such ages (hours); how many rows each verb then has to take."""

    def fill(finished_ago: float, waiting_ago: float) -> dict[str, int]:
        finished, waiting = sized(1_000_000, 3_000), sized(100_000, 2_500)
        rows(ROLE)
        rows(FINISHED, n=finished, ago=finished_ago)
        rows(WAITING, n=waiting, ago=waiting_ago)
        rows(f"VACUUM ANALYZE {ROOMS}")
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
    often = sized(50, 3)
    for name, batch in VERBS.items():
        passes = [timed(database, batch) for _ in range(often)]
        assert [(len(batches), done) for batches, done in passes] == [(WALKS.get(name, 1), 0)] * often
        took = [seconds for batches, _ in passes for seconds in batches]
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


def test_a_day_nobody_keeps_goes_at_once_however_long_it_was(
    database: Database, rows: Rows, sized: Callable[[int, int], int]
) -> None:
    n = sized(1_000_000, 3_000)
    rows(ROLE)
    rows("SELECT celeriac.add_history_day(CAST(now() AT TIME ZONE 'UTC' AS date) - 3)")
    rows(FINISHED, n=n, ago=72)
    began = time.perf_counter()
    app: Any = SimpleNamespace(database=database, settings=SimpleNamespace(event_days=30))
    assert prune.prune_tasks(app.database, app.settings) == 1
    took = time.perf_counter() - began
    print(f"a day of {n} rows: gone after {took * 1000:.2f} ms")
    assert rows("SELECT FROM celeriac.history LIMIT 1") == []
    if sized(1, 0):
        assert took < 0.1
