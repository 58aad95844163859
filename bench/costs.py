"""What a task costs beside time: processor, write-ahead log, index entries and row versions, counted by the servers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields

import psutil
from sqlalchemy import text

from celeriac.store.connections import Database

# An update that is HOT writes no index entry; any other writes one into each index, as an insert does. Partial indexes
# count as far as they have rows: of a no-op task none is keyed or ended badly.
WRITTEN = text("""
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::double precision AS wal_bytes,
    (SELECT sum(n_tup_ins + n_tup_upd) FROM pg_stat_user_tables
        WHERE schemaname LIKE :schema)::double precision AS rows,
    (SELECT sum(n_tup_upd + n_tup_del) FROM pg_stat_user_tables
        WHERE schemaname LIKE :schema)::double precision AS dead,
    (SELECT sum((s.n_tup_ins + s.n_tup_upd - s.n_tup_hot_upd) * (
            SELECT count(*) FROM pg_index i WHERE i.indrelid = s.relid AND i.indpred IS NULL))
        FROM pg_stat_user_tables s WHERE s.schemaname LIKE :schema)::double precision AS index_entries
""")


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of processor time, bytes, entries, versions of rows that were written, and rows that died."""

    worker: float
    postgres: float
    wal_bytes: float
    index_entries: float
    rows: float
    dead: float

    def since(self, before: Costs, tasks: int) -> dict[str, float]:
        """A task's share, the processor's in microseconds."""
        each = {f.name: (getattr(self, f.name) - getattr(before, f.name)) / tasks for f in fields(self)}
        return each | {"worker": each["worker"] * 1e6, "postgres": each["postgres"] * 1e6}


def costs(
    database: Database, workers: Sequence[psutil.Process], *, beside: Sequence[psutil.Process] = (),
    schema: str = "celeriac",
) -> Costs:  # fmt: skip
    """So far. `beside`: servers that count as Postgres does; `schema`: whose tables, as LIKE has it."""
    with database.statement() as connection:
        connection.exec_driver_sql("SELECT pg_stat_force_next_flush()")
        written = connection.execute(WRITTEN, {"schema": schema}).one()
        backend = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        postmaster = psutil.Process(backend).parent()
    assert postmaster is not None
    servers = [postmaster, *postmaster.children(), *beside]  # it keeps count of the backends that have ended
    counted = (written.wal_bytes, written.index_entries, written.rows, written.dead)
    return Costs(_seconds(workers), _seconds(servers), *counted)


def _seconds(processes: Iterable[psutil.Process]) -> float:
    spent = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent += times.user + times.system + (times.children_user + times.children_system)
    return spent
