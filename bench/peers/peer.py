"""What is asked of each peer, and what it costs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import psutil

#: Of Postgres: bytes of its log, and versions of rows that were written, whosever they are.
WRITTEN = """
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::double precision,
    (SELECT sum(n_tup_ins + n_tup_upd) FROM pg_stat_user_tables)::double precision, pg_backend_pid()"""


@dataclass(frozen=True)
class Peer:
    """`fill` empties it and enqueues so many at once; `single` one after the other, each with a commit of its own. Both
    tell the seconds that took; `fill` None where there is no bulk. `work` is a worker while it runs, and tells its pid.
    """

    name: str
    total: int
    fill: Callable[[int], float | None]
    single: Callable[[int], float]
    work: Callable[[], AbstractContextManager[int]]
    left: Callable[[], int]
    is_over: Callable[[], bool]
    processes: int = 1


@dataclass(frozen=True)
class Spent:
    """Seconds of processor time, of the workers and of Postgres and Redis; bytes of its log; versions of rows."""

    worker: float
    servers: float
    wal: float
    rows: float

    def of_a_task(self, before: Spent, tasks: int) -> Spent:
        """The processor's in microseconds."""
        return Spent(
            (self.worker - before.worker) / tasks * 1e6, (self.servers - before.servers) / tasks * 1e6,
            (self.wal - before.wal) / tasks, (self.rows - before.rows) / tasks,
        )  # fmt: skip


def spent(workers: Sequence[int], redis: int) -> Spent:
    """So far, by these processes and what they have started, and by the servers."""
    from bench.measured import rows

    with rows.database.statement() as connection:
        connection.exec_driver_sql("SELECT pg_stat_force_next_flush()")
        wal, versions, backend = connection.exec_driver_sql(WRITTEN).one()
    postmaster = psutil.Process(backend).parent()
    assert postmaster is not None
    return Spent(_seconds(workers), _seconds([postmaster.pid, redis]), wal, versions)


def _seconds(pids: Sequence[int]) -> float:
    """With those of their children, also of such as have ended."""
    found = 0.0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    found += times.user + times.system
                    found += (times.children_user + times.children_system) if process.pid == pid else 0.0
    return found


def of_table(name: str, total: int, table: str, *, processes: int = 1, **verbs: Callable[..., object]) -> Peer:
    """One whose unfinished tasks are the rows of a table."""
    left = partial(asked, f"SELECT count(*) FROM {table}")
    is_over = partial(asked, f"SELECT CAST(NOT EXISTS (SELECT FROM {table}) AS integer)")
    return Peer(name=name, total=total, left=left, is_over=lambda: bool(is_over()), processes=processes, **verbs)  # type: ignore[arg-type]


def asked(query: str) -> int:
    from bench.measured import rows

    with rows.database.statement() as connection:
        return int(connection.exec_driver_sql(query).scalar_one())


@contextmanager
def process(command: Sequence[str], environ: Mapping[str, str] | None = None) -> Iterator[int]:
    running = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    try:
        yield running.pid
    finally:
        running.terminate()
        running.wait()


def told(command: Sequence[str]) -> float:
    """The number that a program prints."""
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
