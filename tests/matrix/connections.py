"""How many connections workers of eight processes have to Postgres under load, directly and through PgBouncer.

    python -m tests.matrix.connections [WORKERS …]      1 and 10, if none are named

PgBouncer has eight connections to the database, whoever comes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from celeriac.store.connections import Database
from celeriac.store.migrate import migrate
from celeriac.testing.servers import Servers, servers
from tests.matrix.pooled import database_on
from tests.matrix.servers import PgBouncer
from tests.processes import ROOT, Rows, process, until

PROCESSES, POOL = 8, 8

#: Tasks of 50 ms, for each process.
EACH = 200

LOAD = Path(__file__).parent / "load"

NOW = """SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""

OVER = "SELECT count(*) FROM celeriac.tasks"


def main() -> int:
    print(f"workers of {PROCESSES}  directly  through PgBouncer (seconds)")
    for workers in map(int, sys.argv[1:] or ("1", "10")):
        with servers() as there, tempfile.TemporaryDirectory(prefix="celeriac-connections-") as name:
            pooler = PgBouncer(Path(name), there.database_url, servers=POOL)
            Path(name).chmod(0o755)
            pooler.start()
            try:
                direct = most(there, workers, None, Path(name))
                pooled = most(there, workers, pooler.url, Path(name))
            finally:
                pooler.stop()
        told = [f"{connections} ({seconds:.0f} s)" for connections, seconds in (direct, pooled)]
        print(f"{workers:12}  {told[0]:>10}  {told[1]:>10}", flush=True)
    return 0


def most(there: Servers, workers: int, pooler: str | None, logs: Path) -> tuple[int, float]:
    """The most connections to Postgres at once, and how long the load took."""
    with there.cloned() as url, ExitStack() as stack:
        database = Database(url)
        migrate(database.engine)
        database.dispose()
        given = {"DATABASE_URL": database_on(pooler, url), "REDIS_URL": there.redis_url, "PYTHONPATH": str(ROOT)}
        rows, seen = Rows(url), 0
        command = ["env", "-C", str(LOAD), sys.executable, "-m", "celery", "-A", "resting", "worker", "-l", "INFO"]
        for n in range(workers):
            more = ("-c", str(PROCESSES), "-n", f"w{n}@here", "--without-mingle", "--without-gossip")
            stack.enter_context(process([*command, *more], given, logs / f"{bool(pooler)}-{workers}-{n}.log"))
        until(lambda: rows.one("SELECT count(*) FROM celeriac.workers") == workers, "all workers", 300)
        began, total = time.monotonic(), workers * PROCESSES * EACH
        rows("SELECT count(celeriac.enqueue('rest')) FROM generate_series(1, :n)", n=total)
        while rows.one(OVER):
            seen = max(seen, int(str(rows.one(NOW))))
            time.sleep(0.2)
        return seen, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
