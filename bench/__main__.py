"""`make bench`: drain, enqueue rate and start latency, plain Celery and rows in turn; prints the ratios.

Both use prefork with two processes and their own defaults for everything else; plain Celery drains with `-P solo`, too,
and the better of the two counts. The pairs alternate, so that a machine whose speed drifts drifts under both.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median, quantiles

import psutil
import redis
from sqlalchemy import text

from bench.costs import Costs, costs
from bench.size import rounds, sized
from bench.tidied import vacuum
from celeriac import local
from celeriac.store.migrate import migrate

DRAIN = {"plain": sized(4_000, 400), "rows": sized(100_000, 2_000)}
ENQUEUES = sized(1_500, 50)
LATENCIES = sized(300, 30)
ROUNDS = rounds()
#: A second each: as many as it takes for a steady median.
ENQUEUE_ROUNDS = sized(9, 1)

ROOMS = ", ".join(
    f"celeriac.{room}"
    for room in (
        "tasks",
        "ready",
        "later",
        "behind",
        "locks",
        "looks",
        "parked",
        "barriers",
        "joins",
        "tickets",
        "history",
    )
)

#: What each drain of rows cost a task, without Celery's events and with them (`-E`).
COSTS: dict[bool, list[dict[str, float]]] = {False: [], True: []}

#: Seconds after which a worker is given up.
PATIENCE = 120.0


def main() -> None:
    with prepared():
        drain, enqueue, latency = measure_drain(), measure_enqueue(), measure_latency()
    print(f"\n{'':28}{'plain Celery':>16}{'Celeriac':>12}{'ratio':>9}")
    report("drain, tasks/s", drain)
    report("single .delay()/s", enqueue)
    for events, words in ((False, "a task, drained and kept"), (True, "the same, with events")):
        costs = COSTS[events]
        print(f"{words}: " + ", ".join(f"{name} {median(c[name] for c in costs):,.1f}" for name in costs[0]))
    for name, of in (("start latency p50, ms", median), ("start latency p99, ms", _p99)):
        report(name, {key: [of(values) * 1000] for key, values in latency.items()})


def report(name: str, figures: dict[str, list[float]]) -> None:
    """Medians, and the median of the pairs' ratios: the machine's speed drifts between pairs, less within one."""
    plain, rows = median(figures["plain"]), median(figures["rows"])
    ratio = median(r / p for p, r in zip(figures["plain"], figures["rows"], strict=True))
    print(f"{name:28}{plain:16,.1f}{rows:12,.1f}{ratio:9.2f}")


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100)[98]


@contextmanager
def prepared() -> Iterator[local.Stack]:
    """Servers, migrated, that the apps of `bench.measured` find, here and in their workers."""
    with tempfile.TemporaryDirectory(prefix="celeriac-bench-") as folder, local.join_temporary() as stack:
        os.environ |= {
            "DATABASE_URL": stack.database_url,
            "REDIS_URL": stack.redis_url,
            "BENCH_SOCKET": f"{folder}/stamps",
        }
        from bench.measured import rows

        migrate(rows.database.engine)
        rows.register_roles()
        yield stack


@contextmanager
def worker(which: str, *options: str) -> Iterator[int]:
    queues = {"plain": "bench_plain", "rows": "noop,gone,swift,brief,stamp,total,paced,sleep,compute"}[which]
    command = [sys.executable, "-m", "celery", "-A", f"bench.measured:{which}", "worker", "-c", "2", "-Q", queues]
    quiet = ["-l", "WARNING", "--without-mingle", "--without-gossip"]
    process = subprocess.Popen([*command, *quiet, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError(f"the worker was not through after {PATIENCE:g} s")
        time.sleep(0.05)


def measure_drain() -> dict[str, list[float]]:
    """Tasks a second from a backlog, between the first tenth and the end: start-up does not count."""
    rates: dict[str, list[float]] = {"plain": [], "rows": []}
    for _ in range(ROUNDS):
        prefork, solo = (_drain_plain(*options) for options in ((), ("-P", "solo")))
        rates["plain"].append(max(prefork, solo))
        rates["rows"].append(_drain("rows", _fill_rows, _left_rows, _no_rows))
        watched = _drain("rows", _fill_rows, _left_rows, _no_rows, "-E")
        plain = f"plain {prefork:,.0f}/s, solo {solo:,.0f}/s"
        print(f"drain  {plain}  rows {rates['rows'][-1]:,.0f}/s  with events {watched:,.0f}/s", flush=True)
    return rates


def _drain_plain(*options: str) -> float:
    return _drain("plain", _fill_plain, _left_plain, lambda: _left_plain() == 0, *options)


def _drain(
    which: str, fill: Callable[[int], None], left: Callable[[], int], is_over: Callable[[], bool], *options: str
) -> float:
    total = DRAIN[which]
    fill(total)
    with worker(which, *options) as pid:
        until(lambda: left() < total * 0.9)
        before = _costs(pid) if which == "rows" else None  # takes a while, in which tasks run
        at_first = left()
        began = time.perf_counter()
        until(is_over)
        took = time.perf_counter() - began
        if before is not None:
            COSTS["-E" in options].append(_costs(pid).since(before, max(at_first, 1)))
        return max(at_first, 1) / took


def _costs(pid: int) -> Costs:
    from bench.measured import rows

    return costs(rows.database, psutil.Process(pid).children())


def _fill_plain(n: int) -> None:
    from bench.measured import plain_noop

    for i in range(n):
        plain_noop.delay(i)


def _left_plain() -> int:
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    try:
        return int(client.llen("bench_plain")) + int(client.hlen("unacked"))
    finally:
        client.close()


def _fill_rows(n: int) -> None:
    from bench.measured import noop, rows

    _empty_rows()
    noop.bulk([(i,) for i in range(n)])
    vacuum(rows.database, "celeriac.tasks, celeriac.ready, celeriac.tickets")


def _left_rows() -> int:
    from bench.measured import rows

    with rows.database.statement() as connection:
        return int(connection.execute(text("SELECT count(*) FROM celeriac.tasks")).scalar_one())


def _no_rows() -> bool:
    """Costs Postgres less, beside the worker, than a count."""
    from bench.measured import rows

    with rows.database.statement() as connection:
        return bool(connection.execute(text("SELECT NOT EXISTS (SELECT FROM celeriac.tasks)")).scalar_one())


def measure_enqueue() -> dict[str, list[float]]:
    """Calls a second, one after the other; the first round, which connects, does not count."""
    from bench.measured import noop, plain_noop

    _empty()
    found: dict[str, list[float]] = {"plain": [], "rows": []}
    for _ in range(ENQUEUE_ROUNDS + 1):
        for which, delay in (("plain", plain_noop.delay), ("rows", noop.delay)):
            began = time.perf_counter()
            for i in range(ENQUEUES):
                delay(i)
            found[which].append(ENQUEUES / (time.perf_counter() - began))
    return {which: rates[1:] for which, rates in found.items()}


def measure_latency() -> dict[str, list[float]]:
    """From before `.delay()` to the handler's first line, one task at a time, both workers idle beside each other."""
    from bench.measured import plain_stamp, stamp

    _empty()
    found: dict[str, list[float]] = {"plain": [], "rows": []}
    with stamps() as next_stamp, worker("plain"), worker("rows"):
        for _ in range(LATENCIES):
            for task in (plain_stamp, stamp):
                task.delay(time.time())
                which, latency = next_stamp()
                found[which].append(latency)
    return {which: values[20:] for which, values in found.items()}


@contextmanager
def stamps() -> Iterator[Callable[[], tuple[str, float]]]:
    """Blocks in the kernel: waiting costs neither process any of the processor."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as at:
        at.bind(os.environ["BENCH_SOCKET"])
        at.settimeout(PATIENCE)

        def following() -> tuple[str, float]:
            which, latency = at.recv(100).decode().split()
            return which, float(latency)

        yield following


def _empty() -> None:
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    client.flushall()
    client.close()
    _empty_rows()


def _empty_rows() -> None:
    from bench.measured import rows

    with rows.database.statement() as connection:
        connection.execute(text(f"TRUNCATE {ROOMS}, celeriac.batchers, celeriac.passes"))


if __name__ == "__main__":
    main()
