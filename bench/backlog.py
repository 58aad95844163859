"""`python -m bench.backlog`: what a pass of 60 and an enqueue cost at a small backlog, and at large ones of all shapes.

`BENCH_ROWS` says how much (1,000,000; 10,000,000 take some 20 GB of disk), `BENCH_FINISHED` how much history (as much;
100,000,000 take some 40 GB and half an hour).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from statistics import median

from sqlalchemy import Connection, make_url, text

from bench.size import sized
from bench.tidied import vacuum
from celeriac import local
from celeriac.dispatch.passes import Dispatcher
from celeriac.enqueue.insert import enqueue
from celeriac.enqueue.rows import NewTask
from celeriac.roles.role import Role
from celeriac.store.connections import Database
from celeriac.store.migrate import migrate

PASSES, ENQUEUES = sized(50, 4), sized(5, 1)
BUILD = Role(name="build", batch_size=60, window=1_000_000, prompt=False, chunk=1)

READY = """
WITH made AS (
    INSERT INTO celeriac.tasks (task_id, role, account, priority)
    SELECT 'ready-' || i, 'build', lpad((i % :accounts)::text, 6, '0'), i % 3 FROM generate_series(1, :rows) i
    RETURNING role, account, priority, scheduled_for, id
)
INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id)
SELECT 0, role, account, priority, scheduled_for, id FROM made"""
BEHIND = """
WITH made AS (
    INSERT INTO celeriac.tasks (task_id, role, account, lock_key)
    SELECT 'lock-' || i, 'build', '000001', 'held' FROM generate_series(1, :rows) i RETURNING *
), head AS (
    SELECT * FROM made ORDER BY id LIMIT 1
), lock AS (
    INSERT INTO celeriac.locks (lock_key, head) SELECT lock_key, id FROM head
), ticket AS (
    INSERT INTO celeriac.tickets (token, role, ids, accounts)
    SELECT gen_random_uuid(), role, ARRAY[id], ARRAY[account] FROM head
)
INSERT INTO celeriac.behind (lock_key, priority, due_at, id, role, account)
SELECT lock_key, priority, scheduled_for, id, role, account FROM made WHERE id <> (SELECT id FROM head)"""
CAPPED = """
INSERT INTO celeriac.account_policies (account, cap)
SELECT lpad(i::text, 6, '0'), 5 FROM generate_series(0, :accounts - 1) i"""
PAUSED = """
WITH policy AS (
    INSERT INTO celeriac.account_policies (account, paused)
    SELECT 'p' || lpad(i::text, 6, '0'), true FROM generate_series(1, :accounts) i RETURNING account
), made AS (
    INSERT INTO celeriac.tasks (task_id, role, account)
    SELECT 'paused-' || account, 'build', account FROM policy RETURNING *
)
INSERT INTO celeriac.parked (account, role, priority, due_at, id)
SELECT account, role, priority, scheduled_for, id FROM made"""
LATER = """
WITH made AS (
    INSERT INTO celeriac.tasks (task_id, role, account, scheduled_for)
    SELECT 'later-' || i, 'build', lpad((i % 1000)::text, 6, '0'), now() + interval '1 day'
    FROM generate_series(1, :rows) i RETURNING *
)
INSERT INTO celeriac.later (role, account, due_at, id) SELECT role, account, scheduled_for, id FROM made"""
HISTORY = """
INSERT INTO celeriac.history (id, task_id, role, account, status, priority, scheduled_for, args, kwargs, completed_at,
    retry_count, tries, max_rounds, losses, created_at)
SELECT nextval('celeriac.tasks_id_seq'), 'past-' || i, 'build', lpad((i % 1000)::text, 6, '0'), 'completed', 0, now(),
    '[]', '{}', now() - i * interval '1 millisecond', 0, 0, 1, 0, now()
FROM generate_series(1, :rows) i"""
INDEXES = """
SELECT CAST(indexrelid AS regclass), pg_get_indexdef(indexrelid) FROM pg_index
WHERE indrelid = ANY(CAST(:tables AS regclass[]))
AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)"""

Fill = list[tuple[str, dict[str, int]]]

_number = count()

FEW, MANY, ACCOUNTS = (
    sized(10_000, 500),
    sized(int(os.environ.get("BENCH_ROWS", 1_000_000)), 2_000),
    sized(100_000, 1_000),
)
FINISHED = sized(int(os.environ.get("BENCH_FINISHED", MANY)), 2_000)
SOME: Fill = [(READY, {"rows": FEW, "accounts": 1000})]
HELD, NOT_DUE = {"rows": sized(100_000, 1_000)}, {"rows": sized(500_000, 1_000)}

SHAPES: dict[str, Fill] = {
    f"{FEW:,} ready, 1,000 accounts": SOME,
    f"{MANY:,} ready, 1,000 accounts": [(READY, {"rows": MANY, "accounts": 1000})],
    f"{MANY:,} ready, {ACCOUNTS:,} accounts": [(READY, {"rows": MANY, "accounts": ACCOUNTS})],
    "the same, each account with a cap": [
        (READY, {"rows": MANY, "accounts": ACCOUNTS}),
        (CAPPED, {"accounts": ACCOUNTS}),
    ],
    f"+ {HELD['rows']:,} behind one lock": [*SOME, (BEHIND, HELD)],
    f"+ {NOT_DUE['rows']:,} not due": [*SOME, (LATER, NOT_DUE)],
    f"+ {ACCOUNTS:,} paused accounts": [*SOME, (PAUSED, {"accounts": ACCOUNTS})],
    f"+ {FINISHED:,} finished": [*SOME, (HISTORY, {"rows": FINISHED})],
}


class NoRedis:
    """The passes' cost in Postgres is what is measured."""

    is_open = True


def main() -> None:
    with local.join_temporary() as stack:
        databases = filled(stack.database_url)
        with next(iter(databases.values())).statement() as connection:
            connection.execute(text("CHECKPOINT"))
        costs = measure(databases)
        for database in databases.values():
            database.dispose()
    first = next(iter(costs.values()))
    print(f"\n{'':36}{'ms a pass':>12}{'ratio':>8}{'ms an enqueue':>16}{'ratio':>8}")
    for shape, of_shape in costs.items():
        told = f"{shape:36}"
        for part, width in ((0, 12), (1, 16)):
            ratio = median(one[part] / small[part] for one, small in zip(of_shape, first, strict=True))
            told += f"{median(one[part] for one in of_shape) * 1000:{width}.2f}{ratio:8.2f}"
        print(told)


def filled(url: str) -> dict[str, Database]:
    """A database for each shape, of which no connection is open."""
    databases: dict[str, Database] = {}
    server = Database(url)
    with server.statement() as connection:
        # Fewer checkpoints: the first write to a page after one logs the whole page.
        connection.execute(text("ALTER SYSTEM SET max_wal_size = '4GB'"))
        connection.execute(text("SELECT pg_reload_conf()"))
        for number, (shape, fill) in enumerate(SHAPES.items()):
            began = time.perf_counter()
            like, rest = begun(fill, list(databases))
            name, template = f"backlog_{number}", databases[like].engine.url.database if like else "template1"
            connection.execute(text(f"DROP DATABASE IF EXISTS {name}"))
            connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"))
            databases[shape] = Database(make_url(url).set(database=name).render_as_string(hide_password=False))
            fill_up(databases[shape], rest)
            print(f"{shape:36}{time.perf_counter() - began:8.1f} s to fill", flush=True)
    server.dispose()
    return databases


def begun(fill: Fill, shapes: list[str]) -> tuple[str | None, Fill]:
    """The largest of the shapes that `fill` begins with, and what it has beyond that."""
    beginnings = [s for s in shapes if fill[: len(SHAPES[s])] == SHAPES[s]]
    like = max(beginnings, key=lambda s: len(SHAPES[s]), default=None)
    return like, fill[len(SHAPES[like]) :] if like else fill


def fill_up(database: Database, fill: Fill) -> None:
    """Vacuumed and on disk at the end: what only follows from so much having been written at once is not measured."""
    migrate(database.engine)
    with database.statement() as connection:
        connection.execute(text("SET maintenance_work_mem = '512MB'"))
        for statement, given in fill:
            with indexed_afterwards(connection, re.findall(r"INSERT INTO (celeriac\.\w+)", statement)):
                connection.execute(text(statement), given)
    vacuum(database)
    with database.statement() as connection:
        connection.execute(text("CHECKPOINT"))
    database.dispose()


@contextmanager
def indexed_afterwards(connection: Connection, tables: list[str]) -> Iterator[None]:
    """Beyond what fits into memory, an entry costs a page read and a page logged; building an index costs a sort."""
    indexes = connection.execute(text(INDEXES), {"tables": tables}).all()
    for name, _ in indexes:
        connection.execute(text(f"DROP INDEX {name}"))
    yield
    for _, definition in indexes:
        connection.exec_driver_sql(definition.replace(" ON ONLY ", " ON "))


def measure(databases: Mapping[str, Database]) -> dict[str, list[tuple[float, float]]]:
    """Seconds of each pass that claims 60, and of an enqueue after it (the mean of several).

    The shapes take turns: a machine whose speed drifts drifts under all.
    """
    dispatchers = {shape: Dispatcher(d, NoRedis(), "bench") for shape, d in databases.items()}  # type: ignore[arg-type]
    costs: dict[str, list[tuple[float, float]]] = {shape: [] for shape in databases}
    for _ in range(PASSES):
        for shape, dispatcher in dispatchers.items():
            costs[shape].append((_timed(dispatcher), _enqueue(dispatcher.database)))
    return costs


def _timed(dispatcher: Dispatcher) -> float:
    began = time.perf_counter()
    done = dispatcher.run_pass(BUILD)
    took = time.perf_counter() - began
    ids = [i for ticket in done.tickets for i in ticket.ids]
    assert len(ids) == BUILD.batch_size, done
    with dispatcher.database.statement() as connection:
        connection.execute(text("DELETE FROM celeriac.tasks WHERE id = ANY(:ids)"), {"ids": ids})
        connection.execute(text("DELETE FROM celeriac.tickets WHERE ids && CAST(:ids AS bigint[])"), {"ids": ids})
    return took


def _enqueue(database: Database) -> float:
    """One by one, each with its commit."""
    new = [NewTask(task_id=f"new-{next(_number)}", role="build", args="[]", kwargs="{}") for _ in range(ENQUEUES)]
    began = time.perf_counter()
    found = []
    for task in new:
        with database.transaction() as connection:
            found += enqueue(connection, [task])
    took = time.perf_counter() - began
    ids = [receipt.id for receipt in found]
    with database.statement() as connection:
        connection.execute(text("DELETE FROM celeriac.tasks WHERE id = ANY(:ids)"), {"ids": ids})
        connection.execute(text("DELETE FROM celeriac.ready WHERE role = 'build' AND account = ''"))
    return took / ENQUEUES


if __name__ == "__main__":
    main()
