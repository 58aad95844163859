"""Installed servers as child processes, each in a folder of its own, as the embedded ones are.

MATRIX_POSTGRES  folders with bin/postgres, besides Debian's
MATRIX_REDIS     programs of Redis and Valkey, besides those on the PATH

Both with a colon between two.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psycopg2
from sqlalchemy import make_url

from celeriac.local import PostgresServer, ValkeyServer
from celeriac.local.server import Server
from celeriac.testing.servers import OUTLIVES_NO_POWER_CUT

CLUSTERS = Path("/usr/lib/postgresql")


class Postgres(PostgresServer):
    """Of these programs."""

    def __init__(self, folder: Path, programs: Path) -> None:
        super().__init__(folder)
        self.programs = programs

    def _programs(self) -> Path:
        return self.programs

    def _command(self) -> list[str]:
        return [*super()._command(), *(word for name in OUTLIVES_NO_POWER_CUT for word in ("-c", f"{name}=off"))]


class Redis(ValkeyServer):
    """Of this program, Redis' or Valkey's."""

    name = "Redis"

    def __init__(self, folder: Path, program: Path) -> None:
        super().__init__(folder)
        self.program = program

    def _program(self) -> Path:
        return self.program


class PgBouncer(Server):
    """Of Debian's package pgbouncer, in transaction mode, in front of that Postgres."""

    name = "PgBouncer"
    farewell = signal.SIGINT

    def __init__(self, folder: Path, behind: str, *, servers: int) -> None:
        """`behind`: Postgres' address; `servers`: connections to each of its databases."""
        super().__init__(folder)
        self.behind, self.servers = make_url(behind), servers
        self.home = self.folder / "home"

    @property
    def url(self) -> str:
        return f"postgresql+psycopg2://postgres@/celeriac?host={quote(str(self.home))}&port=6432"

    def _start(self) -> None:
        self.account.make_folder(self.home)
        settings = self.home / "pgbouncer.ini"
        settings.write_text(CONFIGURATION.format(where=self._where(), servers=self.servers))
        settings.chmod(0o644)
        # PgBouncer takes its settings from its own folder, as the user that Postgres runs as.
        self._launch([str(found("pgbouncer")), settings.name], self.home, self._answers)

    def _where(self) -> str:
        there = self.behind
        host, port = there.query.get("host", there.host), there.query.get("port", there.port)
        given = {"host": host, "port": port or 5432, "user": there.username, "password": there.password}
        return " ".join(f"{name}={value}" for name, value in given.items() if value)

    def _answers(self, _: int) -> bool:
        with suppress(psycopg2.OperationalError):
            psycopg2.connect(make_url(self.url).set(drivername="postgresql").render_as_string(False)).close()
            return True
        return False


#: As docs/servers.md has it. Whoever gets to the socket may log in: its folder is closed.
CONFIGURATION = """[databases]
* = {where}
[pgbouncer]
pool_mode = transaction
default_pool_size = {servers}
max_client_conn = 2000
unix_socket_dir = .
listen_port = 6432
auth_type = any
"""


def postgreses() -> dict[int, Path]:
    """The folder of each major version's programs; Debian's package of the clients alone has no server in it."""
    programs = [*sorted(CLUSTERS.glob("*/bin/postgres")), *(at / "bin" / "postgres" for at in named("MATRIX_POSTGRES"))]
    return {int(version(program).split(".")[0]): program.parent for program in programs}


def redises() -> dict[str, Path]:
    """The program of each: Redis 7, Valkey 8."""
    installed = [program for name in ("redis-server", "valkey-server") if (program := found(name))]
    return {kind(program): program for program in [*installed, *named("MATRIX_REDIS")]}


def kind(program: Path) -> str:
    """Of `Redis server v=7.0.15 sha=...`: Redis 7."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return f"{said.split()[0]} {version(program).split('.')[0]}"


def named(variable: str) -> list[Path]:
    return [Path(name) for name in os.environ.get(variable, "").split(os.pathsep) if name]


def found(program: str) -> Path | None:
    path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    return Path(path) if path else None


def version(program: Path) -> str:
    """As it says itself: 15.18, 7.0.15, 1.18.0."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return next(word.removeprefix("v=") for word in said.split() if word.removeprefix("v=")[:1].isdigit())
