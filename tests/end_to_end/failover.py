"""Servers that take over from one another: a Postgres with its standby, Valkeys with their Sentinels."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis

from celeriac import local
from celeriac.local.postgres import DATABASE, PORT
from celeriac.local.valkey import HOST, free_port
from faults.standby import Replica, Standby
from tests.end_to_end.conftest import shop_server
from tests.processes import until

#: What the Sentinels call the master, how many there are, and how many have to miss it for so long (milliseconds).
MASTER, SENTINELS, QUORUM, DOWN_AFTER = "tickets", 3, 2, 1000


class Pair:
    """`url` names both, and whoever connects gets the one that takes writes."""

    def __init__(self, primary: local.PostgresServer, standby: Standby) -> None:
        self.primary: local.PostgresServer = primary
        self.standby = standby
        hosts = ",".join(str(server.socket_folder) for server in (primary, standby))
        where = f"host={hosts}&port={PORT},{PORT}&target_session_attrs=read-write"
        self.url = f"postgresql+psycopg2://postgres@/{DATABASE}?{where}"

    def follow(self) -> None:
        """Once the primary was killed and the standby promoted: the former becomes the new one's standby, made anew."""
        folder = self.primary.folder
        shutil.rmtree(folder / "data")
        self.primary, self.standby = self.standby, Standby(folder, self.standby)
        self.standby.start()


@contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    """Two servers with the engine's schema and the shop's table, the second a standby of the first."""
    with ExitStack() as stack:
        primary = stack.enter_context(shop_server(folder))
        standby = Standby(folder / "standby", primary)
        standby.start()
        both = Pair(primary, standby)
        stack.callback(lambda: (both.standby.stop(), both.primary.stop()))
        yield both


class Open(local.ValkeyServer):
    """A server without a password, as those who follow Sentinels by their addresses alone expect."""

    password = ""


class Sentinel(Open):
    """Watches a master with others of its kind, and has a replica take over."""

    def __init__(self, folder: Path, master: local.ValkeyServer) -> None:
        super().__init__(folder)
        self.master = master

    def _command(self, port: int) -> list[str]:
        lines = [
            f"bind {HOST}", f"port {port}", "pidfile valkey.pid",
            f"sentinel monitor {MASTER} {HOST} {self.master.port} {QUORUM}",
            f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER}",
            f"sentinel failover-timeout {MASTER} 10000",
        ]  # fmt: skip
        written = self.home / "sentinel.conf"
        if not written.exists():
            written.write_text("\n".join(lines) + "\n")
            os.chown(written, self.account.uid, self.account.gid)
        # By way of its own folder, as its user may not pass through those above.
        return [str(self._program()), f"/proc/self/cwd/{written.name}", "--sentinel"]


class Watched:
    """A master, its replica, and who watches them. `url` names the latter."""

    def __init__(self, master: local.ValkeyServer, replica: Replica, sentinels: list[Sentinel]) -> None:
        self.master, self.replica, self.sentinels = master, replica, sentinels
        self.url = ";".join(f"sentinel://{HOST}:{sentinel.port}/0" for sentinel in sentinels)

    def chosen(self) -> int:
        """The port of the master, as the last Sentinel tells it."""
        with redis.Redis(HOST, self.sentinels[-1].port or 0) as client:
            _, port = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
            return int(port)

    def ready(self) -> bool:
        """Whether each Sentinel knows the others and the replica."""
        with redis.Redis(HOST, self.sentinels[-1].port or 0) as client:
            told = client.sentinel_master(MASTER)
        return bool(told["num-slaves"] == 1 and told["num-other-sentinels"] == SENTINELS - 1)


@contextmanager
def watched(folder: Path) -> Iterator[Watched]:
    with ExitStack() as stack:

        def started(server: local.ValkeyServer) -> None:
            server.start()
            stack.callback(server.stop)
            stack.callback(lambda: server.resume() if server.running else None)

        master = Open(folder / "master", free_port())
        started(master)
        replica = Replica(folder / "replica", master)
        started(replica)
        sentinels = [Sentinel(folder / f"sentinel{n}", master) for n in range(SENTINELS)]
        for sentinel in sentinels:
            started(sentinel)
        all_of_them = Watched(master, replica, sentinels)
        until(all_of_them.ready, "the Sentinels to know each other")
        yield all_of_them
