"""A stack for staged incidents: servers, a worker and a beat of their own, and what their surfaces say first.

What a rule waits for in seconds is made short by settings, or the note that it is above its threshold is made old.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any, TypeVar

import httpx
import psutil
import pytest
import uvicorn
from click.testing import CliRunner, Result
from markupsafe import escape
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from celeriac import Settings, local
from celeriac.api.server import create
from celeriac.cli import within_celery
from celeriac.dashboard import reading
from celeriac.doctor import examine
from celeriac.local.valkey import HOST, free_port
from celeriac.operate import tokens
from celeriac.store import patience
from celeriac.store.migrate import migrate
from celeriac.testing.servers import disconnect
from tests import processes
from tests.api.server import signed_in
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.incidents import OUTSIDE
from tests.end_to_end.trips import Way, way
from tests.processes import Rows, Running, until

#: What a cure's sentence has to run: statements as they stand, commands in backticks.
STATEMENT, COMMAND = re.compile(r"SELECT pg_\w+\([^)]*\);"), re.compile(r"`celeriac ([^`]+)`")

MODULE = "tests.end_to_end.incidents"

T = TypeVar("T")

#: What has to be silent, or waits, for so long. A beat looks at alerts every half second.
SHORT = QUICK | {
    "CELERIAC_ALERT_BEAT_MS": "3000", "CELERIAC_ALERT_HEARTBEAT_MS": "3000", "CELERIAC_ALERT_QUEUE_DEPTH": "50",
    "CELERIAC_TICKET_GRACE_MS": "5000",
}  # fmt: skip

QUEUES = "webhook,poisoned,report"

#: Seconds (of `Staged.clock`) after which whoever asks is told of an incident, once what it is judged by is in SQL; and
#: after its cure no more. What is asked earlier may be answered later: a busy machine has `PATIENCE`.
WITHIN, GONE, PATIENCE = 15.0, 30.0, 90.0

#: Sessions that keep a processor busy, more of them than the alert lets.
BURNERS = 5

#: Seconds for which those who ask here wait for somebody's lock, each of their statements; and what it is elsewhere.
BRIEF, USUAL = 0.2, patience.DEFAULT

#: What has to be in SQL before anybody can judge, and why that takes a while; of the others it is there at once.
FACTS = {
    "fails_now": (
        "SELECT FROM celeriac.task_events WHERE kind IN ('retry', 'failed') HAVING count(*) >= 10",
        "ten attempts have to fail",
    ),
    "account_fails": (
        "SELECT FROM celeriac.task_events WHERE kind IN ('retry', 'failed') HAVING count(*) >= 10",
        "ten attempts have to fail",
    ),
    "slow_role": (
        "SELECT FROM celeriac.history WHERE role = 'webhook' AND completed_at - started_at > interval '1 second' "
        "HAVING count(*) >= 10",
        "half of the newest twenty runs have to be slow",
    ),
    "skipped_instants": (
        "SELECT FROM celeriac.scheduled_jobs WHERE last_skip_at > now() - interval '1 minute'",
        "an instant has to come while its last task runs",
    ),
    "dead_worker": (
        "SELECT FROM celeriac.workers WHERE last_heartbeat_at < now() - interval '3 seconds' AND status = 'active'",
        "it has to be silent for CELERIAC_ALERT_HEARTBEAT_MS",
    ),
    "beat_silent": (
        "SELECT FROM celeriac.beats HAVING coalesce(max(last_tick_at) < now() - interval '3 seconds', true)",
        "none has to tick for CELERIAC_ALERT_BEAT_MS",
    ),
    "failing_sweep": (
        "SELECT FROM celeriac.sweep_runs WHERE failed > 1",
        "it has to fail twice",
    ),
    "short_of_memory": (
        "SELECT FROM celeriac.workers WHERE resources -> 'is_short_of_memory' = 'true'",
        "its task has to grow, and its back-off to be over",
    ),
}  # fmt: skip


@dataclass
class Staged:
    """The stack, and what its surfaces say first. `to_valkey`: the way that all of it takes, by `redis_url`."""

    module: ModuleType
    postgres: local.PostgresServer
    valkey: local.ValkeyServer
    to_valkey: Way
    redis_url: str
    rows: Rows
    worker: Running
    folder: Path
    stack: ExitStack
    browser: httpx.Client
    beat: Running
    in_commands: float = 0.0

    def clock(self) -> float:
        """Seconds, but for those in commands: how busy the machine is says nothing of what they are asked about."""
        return time.monotonic() - self.in_commands

    def within(self, seconds: float, condition: Callable[[], T], what: str) -> T:
        """The first true value; fails, if it was none when it was asked for after so many seconds of the clock."""
        began = self.clock()

        def is_it() -> T:
            asked = self.clock()
            value = condition()
            assert value or asked - began <= seconds, f"waited {seconds:g} s, without those in commands, for {what}"
            return value

        return until(is_it, what, max(PATIENCE, 2 * seconds))

    def names(self, kind: str, subject: str, *words: str) -> None:
        """It comes first everywhere, with these words; and fires once it has lasted."""
        self.is_first(kind, subject, *words)
        self.fires(kind, subject)

    def is_first(self, kind: str, subject: str, *words: str) -> None:
        first_line = f"wrong     {kind} {subject}: "
        if kind in FACTS:
            fact, why = FACTS[kind]
            until(lambda: self.rows(fact), f"{kind}: {why}", PATIENCE)

        def is_it() -> bool:
            status = self.status()
            return status.startswith(first_line) and all(word in status for word in words)

        try:
            self.within(WITHIN, is_it, f"status to name {kind}")
        except AssertionError as late:
            raise AssertionError(f"{late}: {first_line}{words}\n{self.status(whole=True)}") from None
        until(lambda: self.is_first_of_doctor(kind, subject), f"doctor to name {kind} first", PATIENCE)
        title = f"<h1>{kind.replace('_', ' ').capitalize()}: {escape(subject)}"
        until(lambda: title in self.overview(), f"the overview to name {kind} first", PATIENCE)

    def is_first_of_doctor(self, kind: str, subject: str) -> bool:
        first = examine(self.module.app)[0]
        return (first.ok, first.runbook) == (False, f"docs/runbooks/{kind}.md") and first.says.startswith(
            f"{subject}: "
        )

    def fires(self, kind: str, subject: str) -> None:
        """What has been above its threshold for a moment is made to have been for an hour."""

        def is_firing() -> bool:
            self.rows(
                "SET synchronous_commit = off; "  # whichever connection of the pool it is: a commit may wait for ever
                "UPDATE celeriac.alerts_pending SET since = since - interval '1 hour' WHERE name = :n", n=kind,
            )  # fmt: skip
            return bool(self.rows("SELECT FROM celeriac.alerts WHERE (name, subject) = (:n, :s)", n=kind, s=subject))

        try:
            until(is_firing, f"the alert {kind}", PATIENCE)
        except AssertionError:
            alerts = self.rows(
                "SELECT name, subject FROM celeriac.alerts UNION ALL SELECT name, subject FROM celeriac.alerts_pending"
            )
            raise AssertionError(f"{alerts}\n{self.beat.printed()[-3000:]}") from None

    def is_over(self, kind: str) -> None:
        self.within(GONE, lambda: f"wrong     {kind} " not in self.status(whole=True), f"{kind} to leave")
        until(lambda: not self.rows("SELECT FROM celeriac.alerts WHERE name = :n", n=kind), "the alert to end", GONE)

    def is_well(self) -> None:
        try:
            until(lambda: not self.wrong(), "nothing to be wrong", GONE)
        except AssertionError:
            raise AssertionError("\n".join(self.wrong())) from None

    def wrong(self) -> list[str]:
        """But that this process alone knows shared tasks of other tests' applications."""
        found = [finding for finding in examine(self.module.app) if not finding.ok]
        return [one.says for one in found if "stands in the beat config alone" not in one.says]

    def status(self, *, whole: bool = False) -> str:
        told = self.command("status").stdout
        return told if whole else told.partition("\n")[0]

    def overview(self) -> str:
        return self.browser.get("/admin/overview").text

    def tick(self) -> Running:
        environ = SHORT | {"PYTHONPATH": str(processes.ROOT)}
        log = self.folder / "beat.log"
        beat = processes.beat(MODULE, self.postgres.url, self.redis_url, log, environ)
        return self.stack.enter_context(beat)

    def broken(self, what: str) -> None:
        self.rows("INSERT INTO outside VALUES (:what)", what=what)

    def mended(self, what: str | None = None) -> None:
        self.rows("DELETE FROM outside WHERE what = coalesce(:what, what)", what=what)

    def cured(self, kind: str) -> None:
        """What the first line says is done, statement or command; again, while the next of its kind comes first."""

        def is_over() -> bool:
            lines = self.status(whole=True).splitlines()
            if f"wrong     {kind} " not in lines[0]:
                return True
            for statement in STATEMENT.findall(lines[1]):
                self.rows(statement)
            for command in COMMAND.findall(lines[1])[:1]:
                done = self.command(*shlex.split(command))
                assert done.exit_code == 0, done.output
            return False

        self.within(GONE, is_over, f"the cure of {kind}")
        self.is_over(kind)

    def command(self, *arguments: str) -> Result:
        began = time.monotonic()
        try:
            return CliRunner().invoke(within_celery, list(arguments), obj=SimpleNamespace(app=self.module.app))
        finally:
            self.in_commands += time.monotonic() - began

    @contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """Meanwhile each statement of those who ask waits so long for a lock."""
        database = self.module.app.database
        with pytest.MonkeyPatch.context() as patched:
            wait_for_locks(patched, seconds)
            database.dispose()  # its sessions have it set
            yield
        database.dispose()

    @contextmanager
    def another_worker(self, name: str, *arguments: str, **environ: str) -> Iterator[Running]:
        """A worker beside the first, of a fresh process."""
        given = SHORT | {processes.EXECUTED: "1", "WORKER_ID": name} | environ
        log = self.folder / f"{name}.log"
        try:
            with processes.worker(MODULE, self.postgres.url, self.redis_url, log, *arguments, environ=given) as running:
                yield running
        finally:  # somebody forgets it, as the next incident's list would show who was killed here
            self.rows("DELETE FROM celeriac.workers WHERE worker_id = :name", name=name)

    @contextmanager
    def burners(self, statement: str, name: str = "psql", *, first: str | None = None) -> Iterator[None]:
        """Sessions that run a statement for long, more of them than Postgres has processors; `first` before these.

        It has one meanwhile: who asks, and other tests, are not slow as well.
        """
        engine = create_engine(
            self.postgres.url, isolation_level="AUTOCOMMIT", poolclass=NullPool,
            connect_args={"application_name": name, "options": "-c vacuum_cost_delay=20 -c vacuum_cost_limit=1"},
        )  # fmt: skip

        def run(what: str) -> None:
            with suppress(DBAPIError), engine.connect() as connection:
                connection.execute(text(what))

        statements = [*filter(None, [first]), *[statement] * BURNERS]
        threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in statements]
        everywhere = os.sched_getaffinity(0)
        self.bind(set(sorted(everywhere)[:1]))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.rows(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'")
            for thread in threads:
                thread.join(10)
            engine.dispose()
            self.bind(everywhere)

    def bind(self, processors: set[int]) -> None:
        """Let Postgres have these, whatever it starts from now on as well."""
        postmaster = psutil.Process(self.postgres.pid)
        for process in (postmaster, *postmaster.children()):
            with suppress(OSError):  # sessions come and go
                os.sched_setaffinity(process.pid, processors)

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


def configure(server: local.PostgresServer, settings: Mapping[str, str]) -> None:
    rows = Rows(server.url)
    for name, value in settings.items():
        rows(f"ALTER SYSTEM SET {name} = {value}")
    rows.close()
    if settings:
        server.stop()
        server.start()


def wait_for_locks(patched: pytest.MonkeyPatch, seconds: float) -> None:
    patched.setattr(patience, "DEFAULT", seconds)
    patched.setattr(patience, "PATIENCE", ContextVar("patience of a stage", default=seconds))


@contextmanager
def stage(
    folder: Path, *, data: Path | None = None, settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Staged]:
    """`data`: where Postgres has its files, if that is a place of its own. `settings`: more of its own."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading, "SERVES", -1.0)
        patched.setattr(reading, "TIMES", 0.0)
        wait_for_locks(patched, BRIEF)
        postgres, valkey = local.PostgresServer((data or folder) / "postgres"), local.ValkeyServer(folder / "valkey")
        for server in (postgres, valkey):
            server.start()
            stack.callback(server.stop)
        configure(postgres, settings)
        engine = create_engine(postgres.url)
        migrate(engine)
        engine.dispose()
        rows = Rows(postgres.url)
        stack.callback(rows.close)
        rows(OUTSIDE)
        to_valkey = stack.enter_context(way(host=HOST, port=valkey.port or 0))
        redis_url = valkey.url.replace(f":{valkey.port}/", f":{to_valkey.port}/")
        environ = SHORT | {"DATABASE_URL": postgres.url, "REDIS_URL": redis_url}
        module: Any = importlib.import_module(MODULE)
        module.app.settings = Settings.from_environ(environ)
        module.app.conf.broker_url = redis_url
        module.app.register_roles()
        stack.callback(disconnect, module.app)
        log, of_queues = folder / "worker.log", ("-c", "2", "-Q", QUEUES)
        worker = stack.enter_context(processes.worker(MODULE, postgres.url, redis_url, log, *of_queues, environ=SHORT))
        with module.app.database.transaction() as connection:
            token = tokens.create(connection, "admin", ["admin"], by="test")
        cookie = {"Cookie": f"celeriac={signed_in(module.app.database, token)}"}
        browser = httpx.Client(base_url=stack.enter_context(served(module)), headers=cookie, timeout=30)
        stack.callback(browser.close)
        made = Staged(module, postgres, valkey, to_valkey, redis_url, rows, worker, folder, stack, browser, worker)
        made.beat = made.tick()
        until(lambda: rows("SELECT FROM celeriac.beats"), "a tick")
        yield made


def clean(staged: Staged) -> None:
    """What is outside is mended, and what waited or failed because of it is no past of the next."""
    staged.mended()
    under_way = "SELECT FROM celeriac.tickets UNION ALL SELECT FROM celeriac.ready WHERE role <> 'renamed'"
    until(lambda: not staged.rows(under_way), "what may start to end")
    for statement in (
        "DELETE FROM worker_tasks WHERE status = 'pending'", "DELETE FROM celeriac.history",
        "DELETE FROM celeriac.task_events", "DELETE FROM celeriac.minutes",
        "DELETE FROM celeriac.workers WHERE status = 'stopped'",
    ):  # fmt: skip
        staged.rows(statement)
