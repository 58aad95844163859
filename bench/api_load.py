"""`python -m bench.api_load`: lists, statistics and enqueues over HTTP for many clients, beside a long history.

The tasks are made in SQL. `BENCH_ROWS` says how many (1,000,000), `BENCH_CLIENTS` how many ask without a rest (200),
and `BENCH_SECONDS` for how long (30). Ends with 1 where a request was not answered well.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.size import sized
from celeriac import local
from celeriac.local.valkey import free_port
from celeriac.store.connections import Database
from celeriac.store.migrate import migrate
from tasks import app
from tests.api.server import UNLIMITED, Api, is_ready
from tests.faults.clients import Answers, ask_for
from tests.faults.test_api_load import LISTS, asks, cost, fill
from tests.processes import until

ROWS = int(os.environ.get("BENCH_ROWS", sized(1_000_000, 2_000)))
CLIENTS = int(os.environ.get("BENCH_CLIENTS", sized(200, 20)))
#: Of a list that is asked for alone.
CALLS = sized(9, 3)
SECONDS = float(os.environ.get("BENCH_SECONDS", sized(30, 2)))


def main() -> int:
    with local.join_temporary() as stack:
        database = Database(stack.database_url)
        migrate(database.engine, app.migrations)
        database.dispose()
        with serving(stack.database_url, stack.redis_url) as (api, _):
            fill(api, 1, ROWS)
            for path in LISTS:
                print(f"{path}: {cost(api, path, CALLS) * 1000:.1f} ms at {ROWS:,} rows, asked alone", flush=True)
            return told(ask_for(api.url, api.tokens["admin"], SECONDS, CLIENTS, asks))


@contextmanager
def serving(database_url: str, redis_url: str) -> Iterator[tuple[Api, int]]:
    """`celeriac serve`, once it is ready, and its process."""
    port = free_port()
    command = [
        sys.executable,
        "-c",
        "from celeriac.cli import main; main()",
        "-A",
        "tasks",
        "serve",
        "--port",
        str(port),
    ]
    environ = os.environ | UNLIMITED | {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
    with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as server:
        api = Api(f"http://127.0.0.1:{port}", database_url)
        try:
            until(lambda: server.poll() is not None or is_ready(api), "the API to be ready")
            assert server.poll() is None, f"the API has ended with {server.returncode}"
            yield api, server.pid
        finally:
            api.close()
            server.terminate()


def told(answers: Answers) -> int:
    print(f"{CLIENTS} clients, {SECONDS:g} s, {ROWS:,} rows: {answers.total() / SECONDS:.0f} answers a second")
    for kind, taken in answers.seconds.items():
        p50, p99 = (answers.percentile(kind, share) * 1000 for share in (0.5, 0.99))
        print(f"{kind}: {len(taken)} answers, p50 {p50:.0f} ms, p99 {p99:.0f} ms, worst {max(taken) * 1000:.0f} ms")
    for error in answers.errors[:10]:
        print(f"refused: {error}")
    return 1 if answers.errors else 0


if __name__ == "__main__":
    sys.exit(main())
