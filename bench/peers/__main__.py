"""`make bench-peers`: Celeriac, plain Celery, PgQueuer, Procrastinate, Awa, DBOS and graphile-worker in turn.

On the same Postgres and Redis, in one run. A worker is one process that runs tasks, or two; of those that name no pool
both are measured. How each is set up is said in `bench/peers/others.py`. Celeriac has two processes (prefork) and keeps
the history of what succeeded, as in `python -m bench`.

Measured are the drain of no-op tasks, clean and while an idle transaction keeps an old snapshot; what a task of it
costs; a bulk, whose arguments come from the client; enqueues one by one, each committed; and, once the rounds are over,
the drain beside overlapping long readers, of tasks with a kilobyte of arguments, that sleep 1 ms and that compute 10
ms, and the start latency at 10, 100 and 500 enqueues a second. After each fill everything is vacuumed and a checkpoint
made, so that nobody pays for what another wrote. The rate is that between the first tenth and the end. Who is not
installed is named and left out.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median

import redis
from sqlalchemy import make_url, text

from bench.__main__ import DRAIN, ENQUEUES, ROUNDS, _empty_rows, prepared, until, worker
from bench.peers import latency
from bench.peers.others import awa, celery, dbos, graphile, install, pgqueuer, procrastinate
from bench.peers.pace import payload, steady
from bench.peers.peer import Peer, of_table, spent
from bench.size import sized

#: How long (seconds) a long reader holds its snapshot.
READS = 2.0

#: What else a task does: its name, the characters of its argument, and how many are drained.
WORKS = {
    "a kilobyte of arguments": ("noop", 1_000, sized(10_000, 50)),
    "sleeps 1 ms": ("sleep", 0, sized(5_000, 50)),
}

#: And, of those that compute 10 ms: so many that whoever notes them by the hundreds ends no sooner for it.
COMPUTED = sized(2_000, 20)


@dataclass(frozen=True)
class Found:
    """Of one round, tasks a second. `old`: beside an old transaction. `costs`: a task's, of the clean drain."""

    clean: float
    old: float
    bulk: float | None
    single: float
    costs: dict[str, float]


def main() -> None:
    install()
    with prepared() as stack:
        os.environ |= as_libpq(stack.database_url) | {"CPU_BACKOFF_THRESHOLD": "1"}  # the processor is all it is given
        with redis.Redis.from_url(stack.redis_url) as client:
            server = int(client.info("server")["process_id"])
        peers = [*celeriac(), *celery(), *pgqueuer(), *procrastinate(), *awa(), *dbos(), *graphile()]
        found: dict[str, list[Found]] = {peer.name: [] for peer in peers}
        for _ in range(ROUNDS):
            for peer in peers:
                found[peer.name].append(measure(peer, server))
                print(f"{peer.name:34}{found[peer.name][-1].clean:10,.0f}/s", flush=True)
        works = {peer.name: others(peer, server) for peer in peers}
        late = {peer.name: latency.latencies(peer) for peer in peers}
    report(found)
    report_works(works)
    latency.report(late)


def as_libpq(url: str) -> dict[str, str]:
    """Where Postgres is, in the variables that the peers read."""
    at = make_url(url)
    given = {
        "PGHOST": at.host or at.query.get("host"),
        "PGPORT": at.port or at.query.get("port"),
        "PGUSER": at.username,
        "PGPASSWORD": at.password,
        "PGDATABASE": at.database,
    }
    return {name: str(value) for name, value in given.items() if value}


def celeriac() -> Iterator[Peer]:
    yield of_table(
        "Celeriac, prefork -c 2", DRAIN["rows"], "celeriac.tasks", work=partial(worker, "rows"), fill=_fill_rows,
        single=_single_rows, paced=_paced_rows,
    )  # fmt: skip


def measure(peer: Peer, redis_pid: int) -> Found:
    peer.fill(0, "noop", 0)
    single = ENQUEUES / peer.single(ENQUEUES)
    clean, costs, bulk = drain(peer, redis_pid)
    with old_transaction():
        old, _, _ = drain(peer, redis_pid)
    return Found(clean, old, peer.total / bulk if bulk else None, single, costs)


def drain(
    peer: Peer, redis_pid: int, task: str = "noop", size: int = 0, total: int = 0
) -> tuple[float, dict[str, float], float | None]:
    """The rate, what a task cost, and the seconds of the bulk before it."""
    total = total or peer.total
    bulk = peer.fill(total, task, size)
    tidy()
    with ExitStack() as life:
        pids = [life.enter_context(peer.work()) for _ in range(peer.processes)]
        until(lambda: peer.left() < total * 0.9)
        before, at_first = spent(pids, redis_pid), max(peer.left(), 1)
        began = time.perf_counter()
        until(peer.is_over)
        rate = at_first / (time.perf_counter() - began)
        return rate, spent(pids, redis_pid).since(before, at_first), bulk


def others(peer: Peer, redis_pid: int) -> list[float]:
    """The rate of no-op tasks beside long readers, of each of WORKS, and of those that compute."""
    with long_readers():
        beside, _, _ = drain(peer, redis_pid)
    return [beside, *(drain(peer, redis_pid, *work)[0] for work in WORKS.values()), computed(peer)]


def computed(peer: Peer) -> float:
    """The rate of tasks that compute 10 ms, with what the workers take to start."""
    peer.fill(COMPUTED, "compute", 0)
    tidy()
    began = time.perf_counter()
    with ExitStack() as life:
        for _ in range(peer.processes):
            life.enter_context(peer.work())
        until(peer.is_over)
        return COMPUTED / (time.perf_counter() - began)


def tidy() -> None:
    from bench.measured import rows

    with rows.database.statement() as connection:
        for statement in ("VACUUM ANALYZE", "CHECKPOINT"):
            connection.exec_driver_sql(statement)


@contextmanager
def old_transaction() -> Iterator[None]:
    """Idle, with a snapshot of now: nothing that dies from here on may be vacuumed."""
    from bench.measured import rows

    with rows.database.engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        connection.execute(text("SELECT count(*) FROM celeriac.roles"))
        yield
        connection.rollback()


@contextmanager
def long_readers() -> Iterator[None]:
    """Two, one after the other, each of which begins before the other has ended: somebody always has a snapshot."""
    from bench.measured import rows

    ended = threading.Event()

    def read(late: float) -> None:
        ended.wait(late)
        while not ended.is_set():
            with rows.database.engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
                connection.execute(text("SELECT count(*) FROM celeriac.roles"))
                ended.wait(READS)

    readers = [threading.Thread(target=read, args=(late,)) for late in (0.0, READS / 2)]
    for reader in readers:
        reader.start()
    try:
        yield
    finally:
        ended.set()
        for reader in readers:
            reader.join()


def report(found: dict[str, list[Found]]) -> None:
    """Medians, and of the ratios the median of the rounds'."""
    first = next(iter(found.values()))
    heads = ("drain/s", "ratio", "old/clean", "bulk/s", "single/s", "worker us", "servers us", "WAL B", "row versions")
    print("\n" + " " * 34 + "".join(f"{head:>13}" for head in heads))
    for name, rounds in found.items():
        ratio = median(one.clean / celeriac.clean for one, celeriac in zip(rounds, first, strict=True))
        bulks = [one.bulk for one in rounds if one.bulk]
        costs = {name: median(one.costs[name] for one in rounds) for name in rounds[0].costs}
        figures = [
            f"{median(one.clean for one in rounds):,.0f}", f"{ratio:.2f}",
            f"{median(one.old / one.clean for one in rounds):.2f}", f"{median(bulks):,.0f}" if bulks else "",
            f"{median(one.single for one in rounds):,.0f}",
            f"{costs['worker']:,.1f}", f"{costs['postgres']:,.1f}",
            f"{costs['wal_bytes']:,.0f}", f"{costs['rows']:,.1f}",
        ]  # fmt: skip
        print(f"{name:34}" + "".join(f"{figure:>13}" for figure in figures))


def report_works(found: dict[str, list[float]]) -> None:
    """What a drain's tasks do, tasks a second."""
    heads = ("nothing, long readers", *WORKS, "computes 10 ms")
    print(f"\n{'drain/s of a task that has, does':34}" + "".join(f"{head:>26}" for head in heads))
    for name, rates in found.items():
        print(f"{name:34}" + "".join(f"{rate:26,.0f}" for rate in rates))


def _fill_rows(n: int, task: str, size: int) -> float:
    from bench import measured

    _empty_rows()
    began = time.perf_counter()
    getattr(measured, task).bulk([(payload(i, size),) for i in range(n)])
    return time.perf_counter() - began


def _single_rows(n: int) -> float:
    from bench.measured import noop

    began = time.perf_counter()
    for i in range(n):
        noop.delay(i)
    return time.perf_counter() - began


def _paced_rows(rate: float, seconds: float) -> None:
    from bench.measured import paced

    for now in steady(rate, seconds):
        paced.delay(now)


if __name__ == "__main__":
    main()
