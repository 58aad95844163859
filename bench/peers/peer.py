"""What is asked of each peer, and what it costs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import psutil

from bench.costs import Costs, costs

#: Of one round, by name.
Figures = dict[str, float]


@dataclass(frozen=True)
class Peer:
    """`fill` empties it and enqueues so many at once, of a task and with so long an argument; `single` one after the
    other, each with a commit of its own; `within` each in a transaction that writes a row of the caller's, too. They
    tell the seconds that took; None where there is no such thing. `paced` enqueues so many a second, for so many
    seconds, each of which sends a stamp when it starts. `work` is a worker while it runs, and tells its pid. While
    `retain` is open what has finished is removed, again and again; None where nothing is kept, or goes by itself.
    `brief`: the task whose successes that removes.
    """

    name: str
    total: int
    fill: Callable[[int, str, int], float | None]
    single: Callable[[int], float]
    paced: Callable[[float, float], object]
    work: Callable[[], AbstractContextManager[int]]
    left: Callable[[], int]
    is_over: Callable[[], bool]
    processes: int = 1
    within: Callable[[int], float] | None = None
    retain: Callable[[], AbstractContextManager[object]] | None = None
    brief: str = "noop"


def memory(workers: Sequence[int]) -> float:
    """What these processes and those they have started share among them of the memory, in MiB."""
    parents = [psutil.Process(pid) for pid in workers]
    every = [*parents, *(child for parent in parents for child in parent.children(recursive=True))]
    total = 0
    for one in every:
        with suppress(psutil.NoSuchProcess):
            total += one.memory_full_info().pss
    return total / 2**20


def spent(workers: Sequence[int], redis: int) -> Costs:
    """So far, by these processes and what they have started, and by Postgres and Redis, whosever tables they are."""
    from bench.measured import rows

    parents = [psutil.Process(pid) for pid in workers]
    children = [child for parent in parents for child in parent.children(recursive=True)]
    return costs(rows.database, [*parents, *children], beside=[psutil.Process(redis)], schema="%")


def of_table(name: str, total: int, table: str, *, processes: int = 1, **verbs: Callable[..., object]) -> Peer:
    """One whose unfinished tasks are the rows of a table."""
    left = partial(asked, f"SELECT count(*) FROM {table}")
    is_over = partial(asked, f"SELECT CAST(NOT EXISTS (SELECT FROM {table}) AS integer)")
    return Peer(name=name, total=total, left=left, is_over=lambda: bool(is_over()), processes=processes, **verbs)  # type: ignore[arg-type]


def asked(query: str) -> int:
    from bench.measured import rows

    with rows.database.statement() as connection:
        return int(connection.exec_driver_sql(query).scalar_one())


def ran(statement: str) -> None:
    from bench.measured import rows

    with rows.database.statement() as connection:
        connection.exec_driver_sql(statement)


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
