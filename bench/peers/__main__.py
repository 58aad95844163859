"""`make bench-peers`: Celeriac, plain Celery, PgQueuer, Procrastinate, Awa, DBOS and graphile-worker in turn.

On the same Postgres and Redis, in one run. A worker is one process that runs tasks, or two; of those that name no pool
both are measured. How each is set up is said in `bench/peers/others.py`. Celeriac has two processes (prefork) and keeps
the history of what succeeded, as in `python -m bench`; once more of a role that keeps nothing (`keep=0`), as
graphile-worker does; and of one whose passes are larger besides, as docs/workers.md has it for many small tasks.

Measured are the drain of no-op tasks, clean and while an idle transaction keeps an old snapshot; what a task of it
costs; a bulk, whose arguments come from the client; enqueues one by one, each committed, alone and within a transaction
that writes a row of the caller's; the drain beside overlapping long readers, while what has finished is removed, of
tasks with a kilobyte of arguments, that sleep 1 ms and that compute 10 ms; and the start latency at 10, 100 and 500
enqueues a second. After each fill everything is vacuumed and a checkpoint made, so that nobody pays for what another
wrote. The rate is that between the first tenth and the end. All of it is measured in each round (`BENCH_ROUNDS`, 3).
Who is not installed is named and left out; `BENCH_ONLY=PgQueuer,graphile` measures those beside Celeriac alone.

It prints medians, and the ratios' medians, as tables of Markdown; `BENCH_FIGURES=docs/figures` draws them, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import redis
from sqlalchemy import create_engine, make_url
from sqlalchemy.orm import Session

from bench.__main__ import DRAIN, ENQUEUES, ROUNDS, _empty_rows, prepared, worker
from bench.peers import drains, latency, plots, tables
from bench.peers.others import (
    ORDER,
    ORDERS,
    awa,
    celery,
    dbos,
    graphile,
    install,
    pgqueuer,
    procrastinate,
)
from bench.peers.pace import payload, steady
from bench.peers.peer import Figures, Peer, of_table, ran
from celeriac.repair.prune import prune_tasks


def main() -> None:
    install()
    with prepared() as stack:
        os.environ |= as_libpq(stack.database_url) | {"CPU_BACKOFF_THRESHOLD": "1"}  # the processor is all it is given
        with redis.Redis.from_url(stack.redis_url) as client:
            server = int(client.info("server")["process_id"])
        ran(ORDERS)
        peers = [peer for peer in everybody() if is_wanted(peer.name)]
        rounds: dict[str, list[Figures]] = {peer.name: [] for peer in peers}
        for _ in range(ROUNDS):
            for peer in peers:
                rounds[peer.name].append(measure(peer, server))
                print(f"{peer.name:34}{rounds[peer.name][-1]['drain']:10,.0f}/s", flush=True)
    print("\n" + tables.written(rounds))
    if folder := os.environ.get("BENCH_FIGURES"):
        plots.draw(rounds, Path(folder))


def everybody() -> Iterator[Peer]:
    for peers in (celeriac, celery, pgqueuer, procrastinate, awa, dbos, graphile):
        yield from peers()


def is_wanted(name: str) -> bool:
    only = os.environ.get("BENCH_ONLY", "")
    return not only or any(name.startswith(one) for one in ("Celeriac", *only.split(",")))


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


#: How it is measured → the role whose tasks do nothing.
OURS = (
    ("Celeriac, prefork -c 2", "noop"),
    ("Celeriac, nothing kept", "gone"),
    ("Celeriac, larger passes", "swift"),  # and nothing kept
)


def celeriac() -> Iterator[Peer]:
    for name, noop in OURS:
        kept: dict[str, Any] = {"retain": _prune, "brief": "brief"} if noop == "noop" else {}
        yield of_table(
            name, DRAIN["rows"], "celeriac.tasks", work=partial(worker, "rows"), fill=partial(_fill_rows, noop),
            single=partial(_single_rows, noop), within=partial(_within_rows, noop), paced=_paced_rows, **kept,
        )  # fmt: skip


def measure(peer: Peer, redis_pid: int) -> Figures:
    peer.fill(0, "noop", 0)
    figures = {"single": ENQUEUES / peer.single(ENQUEUES)}
    if peer.within is not None:
        figures["within"] = ENQUEUES / peer.within(ENQUEUES)
    return figures | drains.measured(peer, redis_pid) | latency.latencies(peer)


def _fill_rows(noop: str, n: int, task: str, size: int) -> float:
    """`noop`: what stands for the task of that name."""
    from bench import measured

    _empty_rows()
    began = time.perf_counter()
    getattr(measured, noop if task == "noop" else task).bulk([(payload(i, size),) for i in range(n)])
    return time.perf_counter() - began


def _single_rows(noop: str, n: int) -> float:
    from bench import measured

    delay = getattr(measured, noop).delay
    began = time.perf_counter()
    for i in range(n):
        delay(i)
    return time.perf_counter() - began


def _within_rows(noop: str, n: int) -> float:
    from bench import measured

    task = getattr(measured, noop)
    callers = create_engine(make_url(measured.rows.database.url).set(drivername="postgresql+psycopg2"))
    began = time.perf_counter()
    with Session(callers) as session:
        for i in range(n):
            session.execute(ORDER, {"n": i})
            task.using(session=session).delay(i)
            session.commit()
    return time.perf_counter() - began


@contextmanager
def _prune() -> Iterator[None]:
    """As the sweep does that prunes; of `brief` a success is kept for a second."""
    from bench.measured import rows

    with drains.again_and_again(lambda: prune_tasks(rows.database, rows.settings)):
        yield


def _paced_rows(rate: float, seconds: float) -> None:
    from bench.measured import paced

    for now in steady(rate, seconds):
        paced.delay(now)


if __name__ == "__main__":
    main()
