"""A private Postgres without TCP: its one Unix socket is in a folder that only its own user can enter."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import psycopg2

from celeriac.local.account import Account
from celeriac.local.errors import LocalStackError
from celeriac.local.folders import make_socket_folder, socket_folder
from celeriac.local.server import START_PATIENCE, Server
from celeriac.local.wheels import postgres_programs

PORT = 5432  # part of the socket's name only; set here because PGPORT would change it
DATABASE = "celeriac"
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class PostgresServer(Server):
    name = "Postgres"
    farewell = signal.SIGINT  # "fast shutdown": ends sessions and keeps committed data

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.data = self.folder / "data"
        self.socket_folder = socket_folder(self.folder / "socket", self.account)

    @property
    def url(self) -> str:
        host = quote(str(self.socket_folder))
        return f"postgresql+psycopg2://postgres@/{DATABASE}?host={host}&port={PORT}"

    def _start(self) -> None:
        make_socket_folder(self.socket_folder, self.account)
        if not self.data.exists():
            self._initialise()
        self._end_leftover(self.data / "postmaster.pid", self.data)
        self.account.take(self.data)
        self._launch_when_memory_is_free()
        self._create_database()

    def stop(self) -> None:
        super().stop()
        with suppress(OSError):
            self.socket_folder.rmdir()

    def _initialise(self) -> None:
        """Initialise under another name and rename, so that an existing data folder is always complete."""
        unfinished = self.folder / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        self._run_initdb(unfinished)
        self.account.take(unfinished)
        unfinished.rename(self.data)

    def _run_initdb(self, home: Path) -> None:
        maker = Account.with_name()  # initdb looks up its user's name, and the account SERVERS has none
        maker.make_folder(home)
        command = [str(self._programs() / "initdb"), "-D", self._as_seen_from_inside(home, maker)]
        command += ["-U", "postgres", "-E", "UTF8", "--no-locale", "--no-instructions"]
        command += ["--auth-local=trust", "--auth-host=reject"]
        with self._surroundings(home) as options:
            done = subprocess.run(command, check=False, **(options | maker.spawn_options()))
        if done.returncode:
            raise self._failure("could not make its data folder")

    def _as_seen_from_inside(self, home: Path, account: Account) -> str:
        """Return the folder's path for Postgres, which starts inside it and so needs no access to its parents."""
        if account.can_enter(home):
            return str(home)
        if sys.platform == "linux":
            return "/proc/self/cwd"
        raise LocalStackError(
            f"Root runs Postgres as a user of its own, who cannot enter {home}: "
            "set CELERIAC_DATA_DIR to a folder that every user can enter."
        )

    def _launch_when_memory_is_free(self) -> None:
        """Launch repeatedly until it starts: a killed postmaster's sessions live on briefly and have to end first."""
        deadline = time.monotonic() + START_PATIENCE
        while True:
            try:
                return self._launch(self._command(), self.data, self._is_ready)
            except LocalStackError as error:
                if "pre-existing shared memory" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _programs(self) -> Path:
        return postgres_programs(self.account)

    def _command(self) -> list[str]:
        program = self._programs() / "postgres"
        # Quoted, because the setting is a list and a path may contain a comma.
        sockets = '"' + str(self.socket_folder).replace('"', '""') + '"'
        settings = SETTINGS | {"unix_socket_directories": sockets}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(program), "-D", self._as_seen_from_inside(self.data, self.account), "-p", str(PORT), *options]

    def _is_ready(self, pid: int) -> bool:
        """Return whether Postgres is ready, by the eighth line of postmaster.pid, as pg_ctl does."""
        with suppress(FileNotFoundError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"
        return False

    def _create_database(self) -> None:
        try:
            with closing(self._connect()) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE])
                if cursor.rowcount == 0:
                    cursor.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg2.Error as error:
            self.stop()
            raise self._failure(f"did not make its database ({error})") from error

    def _connect(self) -> "psycopg2.extensions.connection":
        connection = psycopg2.connect(host=os.fspath(self.socket_folder), port=PORT, user="postgres", dbname="postgres")
        connection.autocommit = True
        return connection
