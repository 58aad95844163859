"""The peers, each set up as its own documentation has it for many small tasks, in an environment of their own.

- plain Celery: prefork with two processes, two threads, and `-P solo`; results ignored, Celery's defaults otherwise. It
  has no bulk, and knows nothing of a caller's transaction.
- PgQueuer: `pgqueuer.run(…, batch_size=500)` on uvloop and one asyncpg connection a process, after `pgq install`
  (durable tables) and `pgq autovac`. Its log of what succeeded is kept; where retention is at work `clear_queue_log`
  empties it. Filled by one `enqueue` of lists.
- Procrastinate: its command, 24 jobs at once; jobs that succeeded are kept; where retention is at work
  `delete_old_jobs` removes them. Filled by one `batch_defer`.
- Awa: `AsyncClient.start` with 256 workers, as its own benchmark in Python has it (no-ops wait for their completion to
  be durable), defaults otherwise. It keeps what succeeded until it has rotated through its tables. Filled by one
  `enqueue_many_copy`; one by one by `insert`.
- DBOS: workflows without steps; a registered queue that is looked at every 10 ms and of which each process, an executor
  of its own, runs 100 at once; workflows that succeeded are kept; where retention is at work `delete_workflows` removes
  them. It has no bulk: filled by `enqueue_in_transaction`, one after the other.
- graphile-worker: its command with the preset of its page on performance (`bench/peers/graphile`): a local queue of
  500, 24 concurrent jobs, completions in batches; no line a success (`NO_LOG_SUCCESS`), as its own measurement has it.
  It deletes what succeeded. Filled by one `add_jobs`, no rows returned; one by one by `add_job`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import text

from bench.__main__ import DRAIN, _empty, _left_plain, worker
from bench.peers.pace import payload, steady
from bench.peers.peer import Peer, asked, of_table, process, told
from bench.size import sized

HERE = Path(__file__).parent

#: Where the peers are installed; by us, unless somebody says where.
ENVIRONMENT = Path(os.environ.get("BENCH_PEERS", HERE.parent.parent / ".peers"))
GRAPHILE = "graphile-worker@0.17"

#: What a caller's transaction writes beside its task.
ORDERS = "CREATE TABLE bench_orders (n bigint NOT NULL)"
ORDER = text("INSERT INTO bench_orders (n) VALUES (:n)")

ADD_JOBS = text("""
SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
    SELECT json_populate_record(NULL::graphile_worker.job_spec, spec)
    FROM json_array_elements(CAST(:specs AS json)) spec))
""")


#: Jobs ever made less those that ended: in batches, in tables that have rotated away, and singly, counted or yet to be.
#: Its view of jobs has those that are being claimed in no state.
LEFT_OF_AWA = """
SELECT (SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END FROM awa.job_id_seq)
    - (SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches)
    - (SELECT coalesce(sum(pruned_completed_count + pruned_failed_count), 0) FROM awa.queue_terminal_rollups)
    - (SELECT coalesce(sum(live_terminal_count), 0) FROM awa.queue_terminal_live_counts)
    - (SELECT coalesce(sum(terminal_delta), 0) FROM awa.queue_terminal_count_deltas)
"""


def install() -> None:
    """What is not there yet. Without npm there is no graphile-worker."""
    python, done = ENVIRONMENT / "bin" / "python", ENVIRONMENT / ".ready"
    if "BENCH_PEERS" in os.environ or done.exists():
        return
    subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    needed = ["--requirement", str(HERE / "requirements.txt")]
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *needed], check=True)
    if shutil.which("npm"):
        options = ["--prefix", str(ENVIRONMENT), "--no-save", "--no-package-lock"]
        subprocess.run(["npm", "install", *options, GRAPHILE], check=True, capture_output=True)
    done.touch()


def celery() -> Iterator[Peer]:
    prefork, solo = partial(worker, "plain"), partial(worker, "plain", "-P", "solo", "-c", "1")
    threads = partial(worker, "plain", "-P", "threads")
    pools = (
        ("prefork -c 2", prefork, 1), ("threads -c 2", threads, 1), ("solo", solo, 1), ("solo, two processes", solo, 2),
    )  # fmt: skip
    for pool, work, processes in pools[: sized(4, 1)]:
        yield Peer(
            f"plain Celery, {pool}", DRAIN["plain"], _fill_plain, _single_plain, _paced_plain, work, _left_plain,
            lambda: _left_plain() == 0, processes,
        )  # fmt: skip


def pgqueuer() -> Iterator[Peer]:
    if not (pgq := installed("bin/pgq", "PgQueuer")):
        return
    for command in ("install", "autovac"):
        subprocess.run([pgq, command], check=True, capture_output=True)
    program = _program("bench.peers.pgqueued")
    for name, processes in (("PgQueuer", 1), ("PgQueuer, two processes", 2)):
        yield of_table(
            name, DRAIN["rows"], "pgqueuer", processes=processes, work=partial(process, [*program, "work"]),
            fill=partial(_fill_by, program), retain=partial(process, [*program, "retain"]), **_verbs(program),
        )  # fmt: skip


def procrastinate() -> Iterator[Peer]:
    if not installed("bin/procrastinate", "Procrastinate"):
        return
    run = [*_program("procrastinate"), "--app", "bench.peers.procrastinated.app"]
    subprocess.run([*run, "schema", "--apply"], check=True, capture_output=True)
    # Its app may not be of the main module.
    program = [str(ENVIRONMENT / "bin" / "python"), "-c", "from bench.peers.procrastinated import main; main()"]
    unfinished = "procrastinate_jobs WHERE status IN ('todo', 'doing')"
    for name, processes in (("Procrastinate", 1), ("Procrastinate, two processes", 2)):
        yield of_table(
            name, DRAIN["plain"], unfinished, processes=processes,
            work=partial(process, [*run, "worker", "--concurrency", "24"]),
            fill=partial(_fill_by, program), retain=partial(process, [*program, "retain"]), **_verbs(program),
        )  # fmt: skip


def awa() -> Iterator[Peer]:
    if not installed("lib/python*/site-packages/awa", "Awa"):
        return
    program = _program("bench.peers.awaited")
    left = partial(asked, LEFT_OF_AWA)
    for name, processes in (("Awa", 1), ("Awa, two processes", 2)):
        yield Peer(
            name, DRAIN["rows"], partial(_fill_by, program), work=partial(process, [*program, "work"]), left=left,
            is_over=lambda: left() == 0, processes=processes, **_verbs(program),
        )  # fmt: skip


def dbos() -> Iterator[Peer]:
    if not installed("bin/dbos", "DBOS"):
        return
    program = _program("bench.peers.dbosed")
    unfinished = "dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')"
    for name, processes in (("DBOS", 1), ("DBOS, two processes", 2)):
        yield of_table(
            name, DRAIN["plain"], unfinished, processes=processes, work=partial(process, [*program, "work"]),
            fill=partial(_fill_singly_by, program), retain=partial(process, [*program, "retain"]), **_verbs(program),
        )  # fmt: skip


def graphile() -> Iterator[Peer]:
    if not (command := installed("node_modules/.bin/graphile-worker", "graphile-worker")):
        return
    run = [command, "--config", str(HERE / "graphile" / "graphile.config.js")]
    subprocess.run([*run, "--schema-only"], check=True, env=_of_graphile(), stdout=subprocess.DEVNULL)
    for name, processes in (("graphile-worker", 1), ("graphile-worker, two processes", 2)):
        yield of_table(
            name, DRAIN["rows"], "graphile_worker.jobs", processes=processes,
            work=lambda: process(run, _of_graphile()), fill=_fill_graphile, single=_single_graphile,
            within=_within_graphile, paced=_paced_graphile,
        )  # fmt: skip


def installed(program: str, name: str) -> str | None:
    """Its path; who is not installed is named and left out."""
    if found := next(ENVIRONMENT.glob(program), None):
        return str(found)
    print(f"{name} is left out: it is not in {ENVIRONMENT}, which is made anew once you remove it", flush=True)
    return None


def _verbs(program: Sequence[str]) -> dict[str, Any]:
    """What a peer's program does that enqueues one by one."""
    return {
        "single": lambda n: told([*program, "single", str(n)]), "within": lambda n: told([*program, "within", str(n)]),
        "paced": partial(_paced_by, program),
    }  # fmt: skip


def _program(module: str) -> list[str]:
    return [str(ENVIRONMENT / "bin" / "python"), "-m", module]


def _fill_plain(n: int, task: str, size: int) -> None:
    from bench import measured

    _empty()
    delay = getattr(measured, f"plain_{task}").delay
    for i in range(n):
        delay(payload(i, size))


def _single_plain(n: int) -> float:
    from bench.measured import plain_noop

    began = time.perf_counter()
    for i in range(n):
        plain_noop.delay(i)
    return time.perf_counter() - began


def _paced_plain(rate: float, seconds: float) -> None:
    from bench.measured import plain_paced

    for now in steady(rate, seconds):
        plain_paced.delay(now)


def _paced_by(program: Sequence[str], rate: float, seconds: float) -> None:
    subprocess.run([*program, "paced", str(rate), str(seconds)], check=True)


def _paced_graphile(rate: float, seconds: float) -> None:
    from bench.measured import rows

    with rows.database.statement() as connection:
        for now in steady(rate, seconds):
            connection.exec_driver_sql("SELECT FROM graphile_worker.add_job('stamp', %s)", (str(now),))


def _fill_by(program: Sequence[str], n: int, task: str, size: int) -> float:
    return told([*program, "fill", str(n), task, str(size)])


def _fill_singly_by(program: Sequence[str], n: int, task: str, size: int) -> None:
    subprocess.run([*program, "fill", str(n), task, str(size)], check=True)


def _fill_graphile(n: int, task: str, size: int) -> float:
    from bench.measured import rows

    with rows.database.statement() as connection:
        connection.exec_driver_sql("TRUNCATE graphile_worker._private_jobs")
        began = time.perf_counter()
        connection.execute(
            ADD_JOBS, {"specs": json.dumps([{"identifier": task, "payload": payload(i, size)} for i in range(n)])}
        )
        return time.perf_counter() - began


def _single_graphile(n: int) -> float:
    from bench.measured import rows

    with rows.database.statement() as connection:
        began = time.perf_counter()
        for i in range(n):
            connection.exec_driver_sql("SELECT FROM graphile_worker.add_job('noop', %s)", (str(i),))
        return time.perf_counter() - began


def _within_graphile(n: int) -> float:
    from bench.measured import rows

    with rows.database.engine.connect() as connection:
        began = time.perf_counter()
        for i in range(n):
            connection.execute(ORDER, {"n": i})
            connection.exec_driver_sql("SELECT FROM graphile_worker.add_job('noop', %s)", (str(i),))
            connection.commit()
        return time.perf_counter() - began


def _of_graphile() -> dict[str, str]:
    """Without SQLAlchemy's address."""
    return {name: value for name, value in os.environ.items() if name != "DATABASE_URL"} | {"NO_LOG_SUCCESS": "1"}
