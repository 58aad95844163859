"""Staged incidents: each is the first thing that doctor, status, overview and alert name, and its cure ends it.

One stack for all: servers, a worker and a beat of their own. What a rule waits for in seconds is made short by
settings, or the note that it is above its threshold is made old.
"""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from click.testing import CliRunner
from redis import Redis
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from celeriac import Settings, local
from celeriac.api.server import create
from celeriac.cli import within_celery
from celeriac.dashboard import reading
from celeriac.doctor import examine
from celeriac.local.valkey import free_port
from celeriac.operate import tokens
from celeriac.store.migrate import migrate
from tests import processes
from tests.api.server import signed_in
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.incidents import OUTSIDE
from tests.processes import Rows, Running, until

MODULE = "tests.end_to_end.incidents"

#: What has to be silent, or waits, for so long. A beat looks at alerts every half second.
SHORT = QUICK | {
    "CELERIAC_ALERT_BEAT_MS": "3000", "CELERIAC_ALERT_HEARTBEAT_MS": "3000", "CELERIAC_ALERT_QUEUE_DEPTH": "50",
    "CELERIAC_TICKET_GRACE_MS": "5000",
}  # fmt: skip

#: Seconds within which an incident is named, and after its cure no more. A busy machine has some more.
NAMED, GONE = 15.0 * 2, 30.0


@dataclass
class Staged:
    """The stack, and what its surfaces say first."""

    module: ModuleType
    postgres: local.PostgresServer
    valkey: local.ValkeyServer
    rows: Rows
    worker: Running
    folder: Path
    stack: ExitStack
    browser: httpx.Client
    beat: Running

    def names(self, kind: str, subject: str, *words: str) -> None:
        """It comes first everywhere, with these words; and fires once it has lasted."""
        first_line = f"wrong     {kind} {subject}: "
        try:
            until(lambda: self.status().startswith(first_line), f"status to name {kind}", NAMED)
        except AssertionError:
            assert self.status(whole=True).startswith(first_line)
        status = self.status()
        assert all(word in status for word in words), status
        first = examine(self.module.app)[0]
        assert (first.ok, first.runbook) == (False, f"docs/runbooks/{kind}.md"), first
        assert first.says.startswith(f"{subject}: ")
        title = f"<h1>{kind.replace('_', ' ').capitalize()}: {subject}"
        assert title in self.overview()
        self.fires(kind, subject)

    def fires(self, kind: str, subject: str) -> None:
        """What has been above its threshold for a moment is made to have been for an hour."""

        def is_firing() -> bool:
            self.rows("UPDATE celeriac.alerts_pending SET since = since - interval '1 hour' WHERE name = :n", n=kind)
            return bool(self.rows("SELECT FROM celeriac.alerts WHERE (name, subject) = (:n, :s)", n=kind, s=subject))

        try:
            until(is_firing, f"the alert {kind}", NAMED)
        except AssertionError:
            alerts = self.rows(
                "SELECT name, subject FROM celeriac.alerts UNION ALL SELECT name, subject FROM celeriac.alerts_pending"
            )
            raise AssertionError(f"{alerts}\n{self.beat.printed()[-3000:]}") from None

    def is_over(self, kind: str) -> None:
        until(lambda: f"wrong     {kind} " not in self.status(whole=True), f"{kind} to leave", GONE)
        until(lambda: not self.rows("SELECT FROM celeriac.alerts WHERE name = :n", n=kind), "the alert to end", GONE)

    def is_well(self) -> None:
        try:
            until(lambda: not self.wrong(), "nothing to be wrong", GONE)
        except AssertionError:
            assert self.wrong() == []

    def wrong(self) -> list[str]:
        """But that this process alone knows shared tasks of other tests' applications."""
        found = [finding for finding in examine(self.module.app) if not finding.ok]
        return [one.says for one in found if "stands in the beat config alone" not in one.says]

    def status(self, *, whole: bool = False) -> str:
        told = CliRunner().invoke(within_celery, ["status"], obj=SimpleNamespace(app=self.module.app)).stdout
        return told if whole else told.partition("\n")[0]

    def overview(self) -> str:
        return self.browser.get("/admin/overview").text

    def tick(self) -> Running:
        environ = SHORT | {"PYTHONPATH": str(processes.ROOT)}
        log = self.folder / "beat.log"
        beat = processes.beat(MODULE, self.postgres.url, self.valkey.url, log, environ)
        return self.stack.enter_context(beat)

    def broken(self, what: str) -> None:
        self.rows("INSERT INTO outside VALUES (:what)", what=what)

    def mended(self) -> None:
        self.rows("DELETE FROM outside")

    @contextmanager
    def psql(self, *statements: str) -> Iterator[int]:
        """Somebody's open transaction; the process of it."""
        engine = create_engine(self.postgres.url, connect_args={"application_name": "psql"})
        connection = engine.connect()
        try:
            for statement in statements:
                connection.execute(text(statement))
            yield connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        finally:
            connection.invalidate()
            engine.dispose()


@contextmanager
def served(module: ModuleType) -> Iterator[str]:
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(create(module.app), port=port, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started, "the dashboard to listen")
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staged]:
    folder = tmp_path_factory.mktemp("incidents")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading, "SERVES", -1.0)
        patched.setattr(reading, "TIMES", 0.0)
        postgres, valkey = local.PostgresServer(folder / "postgres"), local.ValkeyServer(folder / "valkey")
        for server in (postgres, valkey):
            server.start()
            stack.callback(server.stop)
        engine = create_engine(postgres.url)
        migrate(engine)
        engine.dispose()
        rows = Rows(postgres.url)
        stack.callback(rows.close)
        rows(OUTSIDE)
        environ = SHORT | {"DATABASE_URL": postgres.url, "REDIS_URL": valkey.url}
        module: Any = importlib.import_module(MODULE)
        module.app.settings = Settings.from_environ(environ)
        module.app.conf.broker_url = valkey.url
        module.app.register_roles()
        stack.callback(module.app.database.dispose)
        stack.callback(module.app.publisher.close)
        worker = stack.enter_context(
            processes.worker(MODULE, postgres.url, valkey.url, folder / "worker.log", "-c", "2", environ=SHORT)
        )
        with module.app.database.transaction() as connection:
            token = tokens.create(connection, "admin", ["admin"], by="test")
        cookie = {"Cookie": f"celeriac={signed_in(module.app.database, token)}"}
        browser = httpx.Client(base_url=stack.enter_context(served(module)), headers=cookie, timeout=30)
        stack.callback(browser.close)
        made = Staged(module, postgres, valkey, rows, worker, folder, stack, browser, worker)
        made.beat = made.tick()
        until(lambda: rows("SELECT FROM celeriac.beats"), "a tick")
        yield made


@pytest.fixture(autouse=True)
def well(staged: Staged) -> Iterator[None]:
    """Before each, so that what is named comes of it alone."""
    staged.is_well()
    yield
    staged.mended()
    under_way = "SELECT FROM celeriac.tickets UNION ALL SELECT FROM celeriac.ready WHERE role <> 'renamed'"
    until(lambda: not staged.rows(under_way), "what may start to end")
    staged.rows("DELETE FROM worker_tasks WHERE status = 'pending'")
    staged.rows("DELETE FROM celeriac.history")
    staged.rows("DELETE FROM celeriac.task_events")  # what failed of it is no past of the next


def test_a_healthy_system_under_mixed_load_names_nothing(staged: Staged) -> None:
    for n in range(10):
        staged.module.webhook.bulk([{"account": f"a{i}"} for i in range(n)])
        staged.module.report.bulk([{"key": f"k{n}"}, {"key": f"k{n}"}])
        staged.module.poisoned.delay()
        assert staged.wrong() == []
    assert staged.rows("SELECT name, subject FROM celeriac.alerts") == []


def test_an_open_transaction_that_holds_a_tasks_row(staged: Staged) -> None:
    staged.broken("hangs")
    staged.module.report.delay()
    until(lambda: staged.rows("SELECT FROM worker_tasks WHERE status = 'running'"), "it to run")
    with staged.psql("UPDATE celeriac.worker_tasks SET priority = 7 WHERE status = 'running'") as pid:
        staged.names("held_lock", f"pid {pid}", "idle in transaction", "psql", "since ")
        (cure,) = [finding.cure for finding in examine(staged.module.app) if f"pid {pid}" in finding.says]
        assert f"SELECT pg_terminate_backend({pid});" in str(cure)
        staged.rows(f"SELECT pg_terminate_backend({pid})")
        staged.is_over("held_lock")


def test_a_table_that_is_locked(staged: Staged) -> None:
    with staged.psql("LOCK TABLE celeriac.tasks IN ACCESS EXCLUSIVE MODE") as pid:
        staged.names("locked_table", f"pid {pid}", "idle in transaction", "tasks")
        staged.rows(f"SELECT pg_terminate_backend({pid})")
    staged.is_over("locked_table")


def test_an_endpoint_that_is_down_for_all(staged: Staged) -> None:
    staged.module.webhook.bulk([{"account": f"a{n}"} for n in range(30)])
    ended = "SELECT count(*) FROM worker_tasks WHERE role = 'webhook' AND status = 'completed'"
    until(lambda: staged.rows.one(ended) == 30, "successes")
    staged.broken("down")
    staged.module.webhook.bulk([{"account": f"a{n}"} for n in range(40)])
    staged.names("fails_now", "webhook", "HTTPError: # for https://hooks.example/orders", "40 accounts", "since ")
    staged.mended()
    staged.module.webhook.bulk([{"account": f"a{n}"} for n in range(30)])
    staged.is_over("fails_now")


def test_an_endpoint_that_is_down_for_one_account(staged: Staged) -> None:
    staged.broken("down for acme")
    staged.module.webhook.bulk([{"account": "acme"}] * 40)
    staged.names("fails_now", "webhook", "HTTPError: # for", "of account acme are hit")
    staged.mended()
    staged.module.webhook.bulk([{"account": "acme"}] * 30)
    staged.is_over("fails_now")


def test_a_release_that_fails_at_once(staged: Staged) -> None:
    staged.broken("poison")
    staged.module.poisoned.bulk([{}] * 20)
    staged.names("fails_now", "poisoned", " object is not iterable", "a worker of it started at")
    staged.mended()
    staged.module.poisoned.bulk([{}] * 30)
    staged.is_over("fails_now")


def test_a_worker_that_is_frozen(staged: Staged) -> None:
    staged.broken("hangs")
    staged.module.report.delay()
    until(lambda: staged.rows("SELECT FROM worker_tasks WHERE status = 'running'"), "it to run")
    staged.worker.signal_all(signal.SIGSTOP)
    try:
        ((name,),) = staged.rows("SELECT worker_id FROM celeriac.workers")
        staged.names("dead_worker", name, "was heard of ")
    finally:
        staged.worker.signal_all(signal.SIGCONT)
    staged.mended()
    staged.is_over("dead_worker")


def test_a_role_that_nobody_serves(staged: Staged) -> None:
    staged.rows("INSERT INTO worker_tasks (task_id, role) SELECT 'old ' || n, 'renamed' FROM generate_series(1, 3) n")
    staged.names("no_worker", "renamed", "3 tasks may start, and no worker takes the queue renamed")
    (cure,) = [finding.cure for finding in examine(staged.module.app) if finding.check == "roles"]
    assert "celeriac roles move renamed NAME" in (cure or "")
    staged.rows("DELETE FROM worker_tasks WHERE role = 'renamed'")
    staged.is_over("no_worker")


def test_a_flood_by_one_account(staged: Staged) -> None:
    staged.broken("hangs")
    staged.module.report.bulk([{"account": "other"}] * 3)
    staged.module.report.bulk([{"account": "acme"}] * 80)
    staged.names("flood", "report", "tasks wait, and of the newest ", "of account acme")
    staged.mended()
    staged.is_over("flood")


def test_a_lock_key_that_does_not_move(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    staged.broken("hangs")
    staged.module.report.delay(key="stuck")
    until(lambda: staged.rows("SELECT FROM worker_tasks WHERE status = 'running'"), "it to run")
    staged.module.report.bulk([{"key": "stuck"}] * 2)
    staged.rows("UPDATE celeriac.tickets SET started_at = now() - interval '61 minutes' WHERE worker_id IS NOT NULL")
    staged.names("stuck_key", "key:stuck", "of report has it for 1 h", "2 wait behind it")
    staged.mended()
    staged.is_over("stuck_key")


def test_a_schedule_that_overlaps_itself(staged: Staged) -> None:
    staged.broken("hangs")
    staged.rows("UPDATE celeriac.scheduled_jobs SET enabled = true, next_run_at = now() WHERE name = 'overlapping'")
    staged.names("skipped_instants", "overlapping", "left out an instant at ", " is not over")
    staged.mended()
    staged.rows("UPDATE celeriac.scheduled_jobs SET enabled = false WHERE name = 'overlapping'")
    staged.is_over("skipped_instants")


def test_no_beat(staged: Staged) -> None:
    staged.beat.kill()
    staged.names("beat_silent", "beat", "none has ticked for ", "schedules wait for one")
    staged.beat = staged.tick()
    staged.is_over("beat_silent")


def test_redis_is_full(staged: Staged) -> None:
    with Redis.from_url(staged.valkey.url) as client:
        client.config_set("maxmemory", 1)
        staged.names("redis_full", "Redis", "`maxmemory`")
        client.config_set("maxmemory", 0)
    staged.is_over("redis_full")


def test_redis_is_gone(staged: Staged) -> None:
    staged.valkey.stop()
    staged.names("redis_away", "Redis", "does not answer")
    staged.valkey.start()
    staged.is_over("redis_away")


def test_the_connections_of_postgres_are_used_up(staged: Staged) -> None:
    with ExitStack() as stack:
        most = int(str(staged.rows.one("SHOW max_connections"))) - 3
        used = int(str(staged.rows.one("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")))
        greedy = create_engine(staged.postgres.url, poolclass=NullPool, connect_args={"application_name": "greedy"})
        for _ in range(int(most * 0.95) - used):
            stack.enter_context(greedy.connect())
        staged.names("connections_full", "Postgres", " connections are in use", "greedy")
    staged.is_over("connections_full")
