"""Behind a PgBouncer that allows no transactions nothing starts, and is told why; one with read-only sessions costs no
task anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import make_url, text
from sqlalchemy.exc import OperationalError

from celeriac import Celeriac, ConfigurationError, Settings
from celeriac.cli import main
from celeriac.doctor import examine
from celeriac.run.arrive import run_ticket
from celeriac.worker.step import refuse_old_schema
from tasks import app as tasks_app
from tests.conftest import Servers
from tests.matrix import servers as matrix
from tests.postgres.stages import claimed
from tests.postgres.test_read_only import no_writes
from tests.processes import Rows, until
from tests.systems.stack import on_servers

Pooled = Callable[[str], str]


@pytest.fixture
def pooled(servers: Servers, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pooled]:
    """`pooled("statement")`: the address of the test's database behind a PgBouncer in that mode."""
    if matrix.found("pgbouncer") is None:
        missing = "no pgbouncer: install Debian's package pgbouncer"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with ExitStack() as stack:

        def start(mode: str) -> str:
            said = matrix.CONFIGURATION.replace("pool_mode = transaction", f"pool_mode = {mode}")
            monkeypatch.setattr(matrix, "CONFIGURATION", said)
            for folder in (tmp_path, tmp_path.parent):
                folder.chmod(0o755)  # PgBouncer runs as another user than root
            pooler = matrix.PgBouncer(tmp_path, servers.database_url, servers=5)
            pooler.start()
            stack.callback(pooler.stop)
            name = make_url(database_url).database
            return make_url(pooler.url).set(database=name).render_as_string(hide_password=False)

        yield start


NO_TRANSACTIONS = "a pooler that allows no transactions: set `pool_mode = transaction` in PgBouncer"


def test_a_pooler_without_transactions_is_refused_in_a_line(pooled: Pooled, redis_url: str) -> None:
    """It hangs up on whoever begins one: a worker waited for ever for a Postgres that answered."""
    url = pooled("statement")
    for command in ("migrate", "check"):
        with on_servers(tasks_app, {"DATABASE_URL": url, "REDIS_URL": redis_url}):
            told = CliRunner().invoke(main, [command])
        assert (told.exit_code, type(told.exception)) == (1, SystemExit)
        (line,) = told.stderr.splitlines()
        assert NO_TRANSACTIONS in line
    app = Celeriac("pooled", settings=Settings(database_url=url, redis_url=redis_url), set_as_current=False)
    with pytest.raises(ConfigurationError, match="no transactions"):
        refuse_old_schema(app.database, None)
    assert any(NO_TRANSACTIONS in one.says for one in examine(app))
    app.publisher.close()
    app.database.dispose()


def is_read_only(app: Celeriac) -> bool:
    try:
        with app.database.engine.connect() as connection:
            return connection.exec_driver_sql("SHOW transaction_read_only").scalar_one() == "on"
    except OperationalError:
        return False


ENDS = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""


@pytest.mark.parametrize(("says", "became"), [("SELECT 1", "pending"), ("SET TRANSACTION READ ONLY", "failed")])
def test_a_handler_that_meets_read_only_sessions_waits_unless_it_wanted_them(
    pooled: Pooled, servers: Servers, database_url: str, redis_url: str, rows: Rows, says: str, became: str
) -> None:
    """A pooler reports what was so when it first connected."""
    url = pooled("transaction")
    app = Celeriac("pooled", settings=Settings(database_url=url, redis_url=redis_url), set_as_current=False)

    @app.task(role="work", bind=True, shared=False, prompt=False, keep="forever", max_losses=1, max_retries=0)
    def work(self: Any) -> None:
        with ExitStack() as stack:
            if became == "pending":
                stack.callback(rows, ENDS)
                stack.enter_context(no_writes(servers, database_url))
                rows(ENDS)
                until(lambda: is_read_only(app), "the pooler to have other sessions")
            self.session.execute(text(says))
            self.session.execute(text("CREATE TABLE written ()"))

    app.register_roles()
    work.delay()
    run_ticket(app, work.name, *claimed(app.database, "work"))
    assert rows("SELECT status, losses, retry_count FROM worker_tasks") == [(became, 0, 0)]
    app.publisher.close()
    app.database.dispose()
