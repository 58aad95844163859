"""What is asked of each peer, and what it costs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

import psutil

from bench.costs import Costs, costs


@dataclass(frozen=True)
class Peer:
    """`fill` empties it and enqueues so many at once, of a task and with so long an argument; `single` one after the
    other, each with a commit of its own. Both tell the seconds that took; `fill` None where there is no bulk. `paced`
    enqueues so many a second, for so many seconds, each of which sends a stamp when it starts. `work` is a worker while
    it runs, and tells its pid.
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
