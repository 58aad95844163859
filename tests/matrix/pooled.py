"""`make pgbouncer`: the tests on Postgres again, with PgBouncer in transaction mode between.

    python -m tests.matrix.pooled [pytest's arguments]

It installs nothing. Tests' own statements (`rows`) go around the pooler: they set a search path for the session.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from sqlalchemy import make_url

from celeriac.testing.servers import servers
from tests.matrix import ENGINE
from tests.matrix.servers import PgBouncer, found, version

#: Its address, for the processes that run tests.
VARIABLE = "TESTS_POOLER"

#: Connections to each test's database: tests have several at once in open transactions.
SERVERS = 20

#: Of sessions: behind a pooler no statement is prepared once for one, and two may be the same backend. And of a
#: database that takes no logins, for which PgBouncer lets everybody wait, two minutes as a rule.
LEFT_OUT = (
    "tests/postgres/test_cursor.py::test_a_prepared_statement_is_planned_once_a_connection",
    "tests/postgres/test_cursor.py::test_one_connection_stays_out_of_the_pool_for_the_next_cursor",
    "tests/postgres/test_cursor.py::test_a_forked_child_speaks_on_a_connection_of_its_own",
    "tests/postgres/tickets",
)


def through(url: str) -> str:
    """That database behind the pooler, where there is one."""
    return database_on(os.environ.get(VARIABLE), url)


def around(url: str) -> str:
    """The same without."""
    return database_on(os.environ.get(VARIABLE) and os.environ["DATABASE_URL"], url)


def database_on(server: str | None, url: str) -> str:
    """The database of that name on that server."""
    if not server:
        return url
    return make_url(server).set(database=make_url(url).database).render_as_string(hide_password=False)


def main() -> int:
    program = found("pgbouncer")
    if program is None:
        print("There is no PgBouncer here: install Debian's package pgbouncer.", file=sys.stderr)
        return 1
    with servers() as behind, tempfile.TemporaryDirectory(prefix="celeriac-pooled-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # PgBouncer runs as another user than root
        pooler = PgBouncer(folder, behind.database_url, servers=SERVERS)
        try:
            pooler.start()
            print(f"PgBouncer {version(program)}, transaction mode, {SERVERS} connections a database", flush=True)
            addresses = {"DATABASE_URL": behind.database_url, "REDIS_URL": behind.redis_url, VARIABLE: pooler.url}
            without = [word for name in LEFT_OUT for word in ("--deselect", name)]
            command = [sys.executable, "-m", "pytest", "-n", "2", *without, *(sys.argv[1:] or ENGINE)]
            done = subprocess.run(command, env={**os.environ, **addresses}, check=False)
            logins = pooler.log.read_text().count("login attempt")
            print(f"{logins:,} connections were made to PgBouncer")
            return done.returncode or logins == 0
        finally:
            pooler.stop()


if __name__ == "__main__":
    sys.exit(main())
