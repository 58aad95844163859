"""The stack under test: servers of its own, a proxy before each, and every process of a system at work."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from celeriac import local
from celeriac.local.valkey import free_port
from celeriac.operate import tokens
from celeriac.store.failures import is_gone
from celeriac.store.migrate import migrate
from celeriac.testing.servers import OUTLIVES_NO_POWER_CUT
from faults.guards import GUARDS
from faults.ledger import ACCEPTED, Ledger, Pen
from faults.load import Load
from faults.members import PATIENCE, ROOT, Fleet, Member, until

#: Quick repairs, so that a run takes minutes instead of hours; leases are the roles' (`faults.app.LEASE`).
QUICK = {
    "HEARTBEAT_INTERVAL_MS": "500",
    "POLL_INTERVAL_MS": "250",
    "CELERIAC_TICKET_GRACE_MS": "1000",
    "CELERIAC_SWEEP_INTERVAL_MS": "500",
    "CELERIAC_DRAIN_GRACE_MS": "3000",
    # The machine is busy on purpose, and others work on it as well.
    "CPU_BACKOFF_THRESHOLD": "1",
    "MEMORY_BACKOFF_THRESHOLD": "1",
}


#: Where the processes' wall clock is, and by how much it is wrong (seconds, in the stack's folder).
CLOCK, ADRIFT = ROOT / "faults" / "adrift", "adrift"

#: What handlers write within their attempts' transactions.
EFFECTS = "CREATE TABLE effects (task_id text NOT NULL, run text NOT NULL); CREATE INDEX ON effects (task_id)"

#: What is done to all sessions spares the harness's own.
UNHURRIED = " ".join(
    f"-c {name}={value}"
    for name, value in {
        "statement_timeout": 0, "lock_timeout": 0, "transaction_timeout": 0, "idle_in_transaction_session_timeout": 0,
        "default_transaction_read_only": "off",
    }.items()
)  # fmt: skip


@dataclass(frozen=True)
class Size:
    """How many processes there are. `api`: whether the HTTP API is one of them."""

    beats: int = 2
    prefork: int = 2
    threads: int = 1
    api: bool = True


@dataclass
class Stack:
    folder: Path
    postgres: local.PostgresServer
    valkey: local.ValkeyServer
    proxy: subprocess.Popen[str]
    fleet: Fleet
    ledger: Ledger
    pen: Pen
    environ: Mapping[str, str]
    #: The harness's own way to Postgres, past the proxy.
    engine: Engine
    chance: random.Random
    #: What ends with the stack.
    life: ExitStack
    load: Load = field(init=False)
    old: Any = field(default=None, repr=False)

    def sql(self, statement: str, **given: object) -> list[Any]:
        """Waits for a Postgres that is away."""
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                with self.engine.connect() as connection:
                    result = connection.execute(text(statement), given)
                    return list(result) if result.returns_rows else []
            except DBAPIError as error:
                if not is_gone(error) or time.monotonic() > give_up:
                    raise
                time.sleep(0.1)

    def enqueue(self, role: str, n: int, arguments: str, *, expects: str = "completed") -> list[str]:
        """So many tasks of a role, past the proxy; they are accepted like all others."""
        call = "SELECT (celeriac.enqueue(:role, CAST(:arguments AS jsonb), priority => 10)).task_id"
        found = self.sql(f"{call} FROM generate_series(1, :n)", role=role, arguments=arguments, n=n)
        for (task,) in found:
            self.pen.write(ACCEPTED, id=task, expects=expects)
        return [task for (task,) in found]

    def kill(self, pid: int) -> None:
        """SIGKILL to one process; who has started it, starts another."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def redis(self) -> redis.Redis:
        """Past the proxy."""
        return redis.Redis.from_url(self.valkey.url)

    def spoil(self, of: str, mode: str, **how: object) -> dict[str, int]:
        """Has the proxy before `redis` or `postgres` do that from now on. How many answers of each verb it has lost."""
        assert self.proxy.stdin
        assert self.proxy.stdout
        self.proxy.stdin.write(json.dumps({"of": of, "mode": mode, **how}) + "\n")
        self.proxy.stdin.flush()
        lost: dict[str, int] = json.loads(self.proxy.stdout.readline())
        return lost

    def hand_over(self, to: local.PostgresServer | local.ValkeyServer) -> None:
        """Behind the same address there is another server from now on; whoever is connected is not any more."""
        if isinstance(to, local.ValkeyServer):
            self.valkey = to
        else:
            self.forget_old_transaction()
            self.engine.dispose()
            self.postgres, self.engine = to, _engine(to)
            self.life.callback(self.engine.dispose)
        self.spoil("redis" if isinstance(to, local.ValkeyServer) else "postgres", "move", url=to.url)

    def member(self, name: str, kind: str, *options: str, **environ: str) -> Member:
        """A process of the app that is not started yet; `kind`: worker, beat or celeriac."""
        command = ["-m", "celery", "-A", "faults.app", kind, *options]
        return Member(name, command, {**self.environ, **environ}, self.folder)

    def set_clocks(self, offset: float) -> None:
        """Of every process but the servers and the harness: so many seconds before the machine's, or behind it."""
        with (self.folder / ADRIFT).open("r+b") as opened:
            opened.write(struct.pack("d", offset))

    def hold_old_transaction(self) -> None:
        """One is open all the time, and opened again after it was ended: nothing that dies may be vacuumed."""
        try:
            self.old.execute(text("SELECT 1"))
        except (AttributeError, DBAPIError):
            self.forget_old_transaction()
            self.old = self.engine.connect().execution_options(isolation_level="REPEATABLE READ")
            self.old.execute(text("SELECT count(*) FROM celeriac.roles"))

    def forget_old_transaction(self) -> None:
        if self.old is not None:
            self.old.invalidate()
            self.old.close()
            self.old = None


@contextmanager
def stack(size: Size, seed: int, *, broken: str = "") -> Iterator[Stack]:
    """All of it started and at work. `broken`: the guard that is switched off in it."""
    with ExitStack() as life:
        folder = Path(tempfile.mkdtemp(prefix="celeriac-faults-"))
        folder.chmod(0o755)
        life.callback(shutil.rmtree, folder, ignore_errors=True)
        postgres, valkey = local.PostgresServer(folder / "postgres"), local.ValkeyServer(folder / "valkey")
        for server in (postgres, valkey):
            server.start()
            life.callback(server.stop)
        proxy, ports = _proxy(valkey.url, postgres.url)
        life.callback(proxy.wait)
        life.callback(proxy.kill)
        engine = _engine(postgres)
        environ = _environ(ports, folder, broken, valkey.password)
        ledger, pen = Ledger(folder / "ledger"), Pen(folder / "ledger", "harness")
        fleet = Fleet([], pen)
        made = Stack(folder, postgres, valkey, proxy, fleet, ledger, pen, environ, engine, random.Random(seed), life)
        life.callback(engine.dispose)
        made.environ = {**environ, "FAULTS_TOKEN": _prepare(engine, broken)}
        fleet.members += _members(made, size)
        life.callback(fleet.close)
        for member in fleet.members:
            member.start()
        _wait_until_ready(fleet)
        fleet.start()
        http = {"FAULTS_HTTP": "1"} if size.api else {}
        made.load = Load({**os.environ, **made.environ, **http}, folder / "producer.log")
        life.callback(made.load.close)
        life.callback(made.forget_old_transaction)
        yield made


def _engine(server: local.PostgresServer) -> Engine:
    return create_engine(server.url, isolation_level="AUTOCOMMIT", connect_args={"options": UNHURRIED})


def _proxy(redis_url: str, database_url: str) -> tuple[subprocess.Popen[str], list[int]]:
    command = [sys.executable, "-m", "faults.proxy", redis_url, database_url]
    proxy = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert proxy.stdout is not None
    return proxy, [int(proxy.stdout.readline()) for _ in range(2)]


def _environ(ports: list[int], folder: Path, broken: str, password: str) -> dict[str, str]:
    (folder / "ledger").mkdir()
    (folder / ADRIFT).write_bytes(struct.pack("d", 0.0))
    return {
        **QUICK,
        "REDIS_URL": f"redis://:{password}@127.0.0.1:{ports[0]}/0",
        "DATABASE_URL": f"postgresql://postgres@127.0.0.1:{ports[1]}/celeriac?sslmode=disable&gssencmode=disable",
        "FAULTS_LEDGER": str(folder / "ledger"),
        "FAULTS_BROKEN": broken,
        "FAULTS_API_PORT": str(free_port()),
        "FAULTS_ADRIFT": str(folder / ADRIFT),
        "PYTHONPATH": os.pathsep.join([str(CLOCK), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


def _prepare(engine: Engine, broken: str) -> str:
    """The schema, what is switched off in it, and a token for the API."""
    migrate(engine)
    with engine.connect() as connection:
        for setting in OUTLIVES_NO_POWER_CUT:
            connection.exec_driver_sql(f"ALTER SYSTEM SET {setting} = off")
        connection.exec_driver_sql("SELECT pg_reload_conf()")
        connection.exec_driver_sql(EFFECTS)
        if broken and GUARDS[broken].sql:
            connection.exec_driver_sql(GUARDS[broken].sql)
        return tokens.create(connection, "producer", ["enqueue"], by="harness")


def _members(made: Stack, size: Size) -> list[Member]:
    """One worker in two logs successes, and so goes through Celery's tracer; the others call handlers directly."""
    quiet = ("--without-mingle", "--without-gossip")
    loud = ("INFO", "WARNING")
    found = [made.member(f"beat-{n}", "beat", "-l", "INFO") for n in range(size.beats)]
    found += [made.member(f"worker-{n}", "worker", "-c", "2", "-l", loud[n % 2], *quiet) for n in range(size.prefork)]
    found += [
        made.member(f"worker-threads-{n}", "worker", "-P", "threads", "-c", "3", "-l", "WARNING", *quiet)
        for n in range(size.threads)
    ]
    if size.api:
        found.append(made.member("api", "celeriac", "serve", "--port", made.environ["FAULTS_API_PORT"]))
    return found


def _wait_until_ready(fleet: Fleet) -> None:
    """Each says something of its own when it is; a worker without INFO is there when it has begun to run."""
    for member in fleet.of("beat"):
        if not until(lambda member=member: "Starting" in member.printed(), PATIENCE):  # type: ignore[misc]
            raise RuntimeError(f"{member.name} did not start:\n{member.printed()[-2000:]}")
    for member in fleet.members:
        if not member.is_running:
            raise RuntimeError(f"{member.name} ended:\n{member.printed()[-2000:]}")
