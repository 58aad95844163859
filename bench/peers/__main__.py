"""`python -m bench.peers`: the drain of no-op tasks by Celeriac, plain Celery, PgQueuer and graphile-worker, in turn.

On the same Postgres and Redis, in one run. A worker is one process that runs tasks, or two; of those that name no pool
both are measured. Each is set up as its own documentation has it for many small tasks:

- Celeriac: prefork, two processes, as `python -m bench` drains it; the history of what succeeded is kept.
- plain Celery: prefork with two processes, and `-P solo`; results ignored, Celery's defaults otherwise.
- PgQueuer: `pgqueuer.run(…, batch_size=500)` on uvloop and one asyncpg connection a process, after `pgq install`
  (durable tables) and `pgq autovac`. Its log of what succeeded is kept. Filled by one `enqueue` of lists.
- graphile-worker: its command with the preset of its page on performance (`bench/graphile`): a local queue of 500, 24
  concurrent jobs, completions in batches; no line a success (`NO_LOG_SUCCESS`), as its own measurement has it. It
  deletes what succeeded. Filled by one `add_jobs`, no rows returned.

Arguments of a bulk come from the client, which is on the same machine. After each fill everything is vacuumed and a
checkpoint made, so that nobody pays for what another wrote. The rate is that between the first tenth and the end, as in
`python -m bench`. Who is not installed is named and left out. graphile-worker is looked for in the folder `BENCH_NODE`;
without that npm puts it into a temporary one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from sqlalchemy import make_url, text

from bench.__main__ import DRAIN, ROUNDS, _empty_rows, _fill_plain, _left_plain, prepared, until, worker

GRAPHILE, PACKAGE = Path(__file__).parent / "graphile", "graphile-worker@0.17"
ADD_JOBS = text("""
SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
    SELECT json_populate_record(NULL::graphile_worker.job_spec, spec)
    FROM json_array_elements(CAST(:specs AS json)) spec))
""")


@dataclass(frozen=True)
class Peer:
    """`fill` returns the seconds of its bulk, if it has one; `work` is a worker's process while it runs."""

    name: str
    total: int
    fill: Callable[[int], float | None]
    work: Callable[[], AbstractContextManager[object]]
    left: Callable[[], int]
    is_over: Callable[[], bool]
    processes: int = 1


@dataclass(frozen=True)
class Drained:
    """Tasks a second."""

    rate: float
    bulk: float | None


def main() -> None:
    with prepared() as stack, tempfile.TemporaryDirectory(prefix="bench-node-") as folder:
        os.environ |= as_libpq(stack.database_url)
        peers = [*celeriac(), *celery(), *pgqueuer(), *graphile(Path(os.environ.get("BENCH_NODE", folder)))]
        found: dict[str, list[Drained]] = {peer.name: [] for peer in peers}
        for _ in range(ROUNDS):
            for peer in peers:
                found[peer.name].append(drain(peer))
                print(f"{peer.name:36}{found[peer.name][-1].rate:10,.0f}/s", flush=True)
    report(found)


def as_libpq(url: str) -> dict[str, str]:
    """Where Postgres is, in the variables that both peers read."""
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
    yield of_postgres("Celeriac, prefork -c 2", _fill_rows, partial(worker, "rows"), "celeriac.tasks")


def celery() -> Iterator[Peer]:
    """It has no bulk."""
    prefork, solo = partial(worker, "plain"), partial(worker, "plain", "-P", "solo", "-c", "1")
    for pool, work, processes in (("prefork -c 2", prefork, 1), ("solo", solo, 1), ("solo, two processes", solo, 2)):
        name, is_over = f"plain Celery, {pool}", lambda: _left_plain() == 0
        yield Peer(name, DRAIN["plain"], _fill_plain, work, _left_plain, is_over, processes)


def pgqueuer() -> Iterator[Peer]:
    if find_spec("pgqueuer") is None or find_spec("asyncpg") is None:
        return left_out("PgQueuer", f"{sys.executable} -m pip install 'pgqueuer>=1.6' asyncpg")
    from bench.pgqueued import fill

    pgq = [sys.executable, "-m", "pgqueuer"]
    for command in ("install", "autovac"):
        subprocess.run([*pgq, command], check=True, capture_output=True)
    run = [sys.executable, "-m", "bench.pgqueued"]
    for name, processes in (("PgQueuer", 1), ("PgQueuer, two processes", 2)):
        yield of_postgres(name, fill, partial(process, run), "pgqueuer", processes)


def graphile(folder: Path) -> Iterator[Peer]:
    program = folder / "node_modules" / ".bin" / "graphile-worker"
    if "BENCH_NODE" not in os.environ and shutil.which("npm"):
        install = ["npm", "install", "--prefix", str(folder), "--no-save", "--no-package-lock", PACKAGE]
        subprocess.run(install, check=False, capture_output=True)
    if not program.exists():
        return left_out("graphile-worker", f"npm install {PACKAGE} (in the folder that BENCH_NODE names)")
    run = [str(program), "--config", str(GRAPHILE / "graphile.config.js")]
    subprocess.run([*run, "--schema-only"], check=True, env=_of_graphile(), stdout=subprocess.DEVNULL)
    for name, processes in (("graphile-worker", 1), ("graphile-worker, two processes", 2)):
        work = partial(process, run, _of_graphile())
        yield of_postgres(name, _fill_graphile, work, "graphile_worker.jobs", processes)


def left_out(name: str, command: str) -> None:
    print(f"{name} is left out, as it is not installed: {command}", flush=True)


def of_postgres(
    name: str, fill: Callable[[int], float], work: Callable[[], AbstractContextManager[object]], table: str,
    processes: int = 1,
) -> Peer:  # fmt: skip
    """What is unfinished is what the table has."""
    left = partial(_asked, f"SELECT count(*) FROM {table}")
    is_over = partial(_asked, f"SELECT CAST(NOT EXISTS (SELECT FROM {table}) AS integer)")
    return Peer(name, DRAIN["rows"], fill, work, left, lambda: bool(is_over()), processes)


@contextmanager
def process(command: list[str], environ: dict[str, str] | None = None) -> Iterator[None]:
    running = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        running.terminate()
        running.wait()


def drain(peer: Peer) -> Drained:
    bulk = peer.fill(peer.total)
    tidy()
    with ExitStack() as workers:
        for _ in range(peer.processes):
            workers.enter_context(peer.work())
        until(lambda: peer.left() < peer.total * 0.9)
        at_first = max(peer.left(), 1)
        began = time.perf_counter()
        until(peer.is_over)
        rate = at_first / (time.perf_counter() - began)
    return Drained(rate, peer.total / bulk if bulk else None)


def tidy() -> None:
    from bench.measured import rows

    with rows.database.statement() as connection:
        for statement in ("VACUUM ANALYZE", "CHECKPOINT"):
            connection.exec_driver_sql(statement)


def report(found: dict[str, list[Drained]]) -> None:
    """Medians, and of the ratios the median of the rounds'."""
    first = next(iter(found.values()))
    print(f"\n{'':36}{'drain, tasks/s':>16}{'ratio':>9}{'bulk, rows/s':>16}")
    for name, rounds in found.items():
        ratio = median(one.rate / celeriac.rate for one, celeriac in zip(rounds, first, strict=True))
        bulks = [one.bulk for one in rounds if one.bulk]
        bulk = f"{median(bulks):16,.0f}" if bulks else ""
        print(f"{name:36}{median(one.rate for one in rounds):16,.0f}{ratio:9.2f}{bulk}")


def _fill_rows(n: int) -> float:
    from bench.measured import noop

    _empty_rows()
    began = time.perf_counter()
    noop.bulk([(i,) for i in range(n)])
    return time.perf_counter() - began


def _fill_graphile(n: int) -> float:
    from bench.measured import rows

    with rows.database.statement() as connection:
        began = time.perf_counter()
        connection.execute(ADD_JOBS, {"specs": json.dumps([{"identifier": "noop", "payload": i} for i in range(n)])})
        return time.perf_counter() - began


def _of_graphile() -> dict[str, str]:
    """Without SQLAlchemy's address."""
    return {name: value for name, value in os.environ.items() if name != "DATABASE_URL"} | {"NO_LOG_SUCCESS": "1"}


def _asked(query: str) -> int:
    from bench.measured import rows

    with rows.database.statement() as connection:
        return int(connection.exec_driver_sql(query).scalar_one())


if __name__ == "__main__":
    main()
