"""Servers that follow another one, to take over from it."""

from __future__ import annotations

import subprocess
from contextlib import closing, suppress
from pathlib import Path

import psycopg2
import redis

from celeriac import local
from celeriac.local.postgres import DATABASE, PORT
from celeriac.local.valkey import HOST
from faults.members import PATIENCE, must

#: What a commit waits for: any standby.
SYNCHRONOUS = "ANY 1 (*)"

FOLLOWED = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'"


class Standby(local.PostgresServer):
    def __init__(self, folder: Path, primary: local.PostgresServer) -> None:
        super().__init__(folder)
        self.primary = primary

    def promote(self) -> None:
        """Once it does, it takes writes."""
        assert _asked(self, "SELECT pg_promote()")

    def _run_initdb(self, home: Path) -> None:
        """What it begins with is the primary's, by way of a connection."""
        self.account.make_folder(home)
        command = [str(self._programs() / "pg_basebackup"), "-D", self._as_seen_from_inside(home, self.account)]
        command += ["-X", "stream", "-R", "-c", "fast"]
        command += ["-h", str(self.primary.socket_folder), "-p", str(PORT), "-U", "postgres"]
        with self._surroundings(home) as options:
            subprocess.run(command, check=True, **options)

    def _is_ready(self, pid: int) -> bool:
        with suppress(FileNotFoundError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() in ("standby", "ready")
        return False


def synchronise(primary: local.PostgresServer) -> None:
    """From now on each commit waits for a standby; one that starts later is none, and has to be there."""
    _asked(primary, f"ALTER SYSTEM SET synchronous_standby_names = '{SYNCHRONOUS}'", "SELECT pg_reload_conf()")
    must(lambda: _asked(primary, FOLLOWED), PATIENCE, "the standby to follow")


def _asked(server: local.PostgresServer, *statements: str) -> object:
    """What the last of them tells."""
    with closing(psycopg2.connect(host=str(server.socket_folder), user="postgres", dbname=DATABASE)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            told = cursor.fetchone()
    return told[0] if told else None


class Replica(local.ValkeyServer):
    def __init__(self, folder: Path, master: local.ValkeyServer) -> None:
        super().__init__(folder)
        self.master: local.ValkeyServer | None = master
        self.password = master.password  # it may take its place

    def follows(self) -> bool:
        """Whether it has all that the master had as it joined."""
        with redis.Redis.from_url(self.url) as client:
            return bool(client.info("replication")["master_link_status"] == "up")

    def promote(self) -> None:
        """Also for when it is started anew."""
        self.master = None
        with redis.Redis.from_url(self.url) as client:
            client.replicaof("NO", "ONE")

    def _command(self, port: int) -> list[str]:
        follow = [] if self.master is None else ["--replicaof", HOST, str(self.master.port)]
        return [*super()._command(port), *follow]
