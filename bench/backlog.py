"""`python -m bench.backlog`: what selecting 60 tasks costs at a small backlog and at large ones of four shapes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median

from sqlalchemy import make_url, text

from bench.size import sized
from celeriac import local
from celeriac.dispatch.passes import Dispatcher
from celeriac.roles.role import Role
from celeriac.store.connections import Database
from celeriac.store.migrate import migrate

PASSES = sized(50, 4)
BUILD = Role(name="build", batch_size=60, window=1_000_000, eager=False, chunk=1)

READY = """
INSERT INTO worker_tasks (task_id, role, account, priority)
SELECT 'ready-' || i, 'build', lpad((i % :accounts)::text, 6, '0'), i % 3 FROM generate_series(1, :rows) i"""
BEHIND = """
INSERT INTO worker_tasks (task_id, role, account, lock_key, waits_for, status, token, claimed_at)
SELECT 'lock-' || i, 'build', '000001', 'held', CASE WHEN i > 1 THEN 'lock' END,
    CASE WHEN i = 1 THEN 'claimed' ELSE 'pending' END, CASE WHEN i = 1 THEN gen_random_uuid() END,
    CASE WHEN i = 1 THEN now() END
FROM generate_series(1, :rows) i"""
CAPPED = """
INSERT INTO account_policies (account, cap) SELECT lpad(i::text, 6, '0'), 5 FROM generate_series(0, :accounts - 1) i"""
LATER = """
INSERT INTO worker_tasks (task_id, role, account, waits_for, scheduled_for)
SELECT 'later-' || i, 'build', lpad((i % 1000)::text, 6, '0'), 'time', now() + interval '1 day'
FROM generate_series(1, :rows) i"""

FEW, MANY, ACCOUNTS = sized(10_000, 500), sized(1_000_000, 2_000), sized(100_000, 1_000)
SOME = [(READY, {"rows": FEW, "accounts": 1000})]
HELD, NOT_DUE = {"rows": sized(100_000, 1_000)}, {"rows": sized(500_000, 1_000)}

SHAPES = {
    f"{FEW:,} ready, 1,000 accounts": SOME,
    f"{MANY:,} ready, 1,000 accounts": [(READY, {"rows": MANY, "accounts": 1000})],
    f"{MANY:,} ready, {ACCOUNTS:,} accounts": [(READY, {"rows": MANY, "accounts": ACCOUNTS})],
    "the same, each account with a cap": [
        (READY, {"rows": MANY, "accounts": ACCOUNTS}),
        (CAPPED, {"accounts": ACCOUNTS}),
    ],
    f"+ {HELD['rows']:,} behind one lock": [*SOME, (BEHIND, HELD)],
    f"+ {NOT_DUE['rows']:,} not due": [*SOME, (LATER, NOT_DUE)],
}


class NoRedis:
    """The passes' cost in Postgres is what is measured."""

    is_open = True


def main() -> None:
    with local.join_temporary() as stack:
        databases = {shape: filled(stack.database_url, n, fill) for n, (shape, fill) in enumerate(SHAPES.items())}
        with next(iter(databases.values())).statement() as connection:
            connection.execute(text("CHECKPOINT"))
        costs = measure(databases)
        for database in databases.values():
            database.dispose()
    first = next(iter(costs.values()))
    for shape, seconds in costs.items():
        ratio = median(s / f for s, f in zip(seconds, first, strict=True))
        print(f"{shape:36}{median(seconds) * 1000:8.2f} ms a pass{ratio:8.2f}")


def filled(url: str, number: int, fill: list[tuple[str, dict[str, int]]]) -> Database:
    """A database of its own, vacuumed: what only follows from so much having been written at once is not measured."""
    name = f"backlog_{number}"
    server = Database(url)
    with server.statement() as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {name}"))
        connection.execute(text(f"CREATE DATABASE {name}"))
    server.dispose()
    database = Database(make_url(url).set(database=name).render_as_string(hide_password=False))
    migrate(database.engine)
    with database.statement() as connection:
        for statement, given in fill:
            connection.execute(text(statement), given)
        connection.execute(text("VACUUM ANALYZE worker_tasks"))
    return database


def measure(databases: Mapping[str, Database]) -> dict[str, list[float]]:
    """Seconds of each pass that claims 60. The shapes take turns: a machine whose speed drifts drifts under all."""
    dispatchers = {shape: Dispatcher(d, NoRedis(), "bench") for shape, d in databases.items()}  # type: ignore[arg-type]
    costs: dict[str, list[float]] = {shape: [] for shape in databases}
    for _ in range(PASSES):
        for shape, dispatcher in dispatchers.items():
            costs[shape].append(_timed(dispatcher))
    return costs


def _timed(dispatcher: Dispatcher) -> float:
    began = time.perf_counter()
    done = dispatcher.run_pass(BUILD)
    took = time.perf_counter() - began
    ids = [i for ticket in done.tickets for i in ticket.ids]
    assert len(ids) == BUILD.batch_size, done
    with dispatcher.database.statement() as connection:
        connection.execute(text("DELETE FROM worker_tasks WHERE id = ANY(:ids)"), {"ids": ids})
    return took


if __name__ == "__main__":
    main()
