"""What a hundred idle workers cost one Postgres, beside what died under somebody's old transaction."""

from __future__ import annotations

import time

import psutil

from celeriac.dispatch.glance import glance
from celeriac.store import look
from celeriac.store.connections import Database
from tests.processes import Rows
from tests.tiers import pace

WORKERS, DEAD = 100, 300_000

#: Of a processor of the machine that `tests.tiers` was measured on.
SHARE = 0.05

#: Seconds over which it is measured; each worker polls once a second.
MEASURED = 4.0


def poll(database: Database) -> None:
    """As a worker's lifeline does."""
    with database.statement() as connection:
        if glance(connection, ["work"], 0.9).has_looks and look.has_turn(connection, 0.9):
            assert look.look(connection) == []


def test_a_hundred_idle_workers_beside_dead_keys_take_a_twentieth_of_a_processor(
    database: Database, rows: Rows
) -> None:
    with database.engine.connect().execution_options(isolation_level="REPEATABLE READ") as snapshot:
        snapshot.exec_driver_sql("SELECT count(*) FROM celeriac.looks")
        rows(f"INSERT INTO looks SELECT 'key ' || n FROM generate_series(1, {DEAD}) AS n")
        rows("DELETE FROM looks")
        with database.statement() as connection:
            pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        for _ in range(3):
            poll(database)
        backend, began = psutil.Process(pid), time.monotonic()
        before, polls = sum(backend.cpu_times()[:2]), 0
        while (now := time.monotonic() - began) < MEASURED:
            while polls < now * WORKERS:
                poll(database)
                polls += 1
            time.sleep(0.01)
        used = sum(backend.cpu_times()[:2]) - before
    assert used / polls * WORKERS <= SHARE * pace()
