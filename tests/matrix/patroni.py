"""A failover by Patroni with etcd, by the configuration that docs/servers.md recommends, longer than a lease.

    python -m tests.matrix.patroni [TIMES]      once, if no number is named

Debian's packages `patroni` and `etcd-server`; Postgres is the embedded one. The leader is killed with its Patroni while
tasks run, and is started again as the other's standby.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import psycopg2
from sqlalchemy import create_engine

from celeriac.local.account import Account
from celeriac.local.valkey import HOST, free_port
from celeriac.local.wheels import postgres_programs
from celeriac.store.migrate import migrate
from celeriac.testing.servers import Servers, servers
from tests import processes
from tests.deploy.written import of
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.shop import RAN
from tests.end_to_end.test_failover import Producer, finished
from tests.processes import Rows, until

#: Seconds a failover may take here: the time to live of the leader's key, and what an election takes.
TAKES = 90.0

ENDED = "SELECT status, losses FROM celeriac.worker_tasks WHERE task_id = ANY (:tasks)"


def configuration(name: str, data: Path, programs: str, *, port: int, api: int, etcd: int) -> str:
    """The page's, for a machine of this name with all of its ports here."""
    (block,) = of("docs/servers.md", "yaml")
    here = {
        "name: one": f"name: {name}",
        "one.internal:8008": f"{HOST}:{api}", "0.0.0.0:8008": f"{HOST}:{api}",
        "one.internal:5432": f"{HOST}:{port}", "0.0.0.0:5432": f"{HOST}:{port}",
        "one.internal:2379,two.internal:2379,three.internal:2379": f"{HOST}:{etcd}",
        "/var/lib/postgresql/shop": str(data), "/usr/lib/postgresql/18/bin": programs,
        "10.0.0.0/8": f"{HOST}/32",
    }  # fmt: skip
    text = block.text
    for there, instead in here.items():
        assert there in text, f"{there} in docs/servers.md"
        text = text.replace(there, instead)
    return text


class Node:
    """Patroni and its Postgres. What the page says of one machine, with this one's addresses."""

    def __init__(self, folder: Path, name: str, etcd: int) -> None:
        self.folder, self.name = folder / name, name
        self.port, self.api = free_port(), free_port()
        self.account = Account.with_name()  # initdb, which Patroni runs, looks it up
        self.account.make_folder(self.folder)
        self.process: subprocess.Popen[bytes] | None = None
        programs = str(postgres_programs(self.account))
        text = configuration(name, self.folder / "data", programs, port=self.port, api=self.api, etcd=etcd)
        text += f"  parameters: {{unix_socket_directories: {self.folder}}}\n"
        (self.folder / "patroni.yml").write_text(text)

    def start(self) -> None:
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PG", "VIRTUAL_ENV"))}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["/usr/bin/patroni", str(self.folder / "patroni.yml")], cwd=self.folder, stdout=log, stderr=log,
                env=environ | {"PATH": "/usr/bin:/bin", "HOME": str(self.folder)}, start_new_session=True,
                **self.account.spawn_options(),
            )  # fmt: skip

    def kill(self) -> None:
        """Patroni and Postgres at once, as a machine that loses its power."""
        if self.process is None:
            return
        postmaster = self.folder / "data" / "postmaster.pid"
        pid = int(postmaster.read_text().split()[0]) if postmaster.exists() else None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(os.getpgid(pid), signal.SIGKILL)

    def has(self, path: str) -> bool:
        """Whether it answers yes to a health check of Patroni's, as a load balancer asks."""
        with suppress(OSError), urllib.request.urlopen(f"http://{HOST}:{self.api}/{path}", timeout=2) as answer:
            return bool(answer.status == 200)
        return False


def etcd(folder: Path, stack: ExitStack) -> int:
    """One of the three that a deployment has; the port."""
    port, peers = free_port(), free_port()
    here, there = f"http://{HOST}:{port}", f"http://{HOST}:{peers}"
    command = [
        "etcd", "--data-dir", str(folder / "etcd"), "--listen-client-urls", here, "--advertise-client-urls", here,
        "--listen-peer-urls", there, "--initial-advertise-peer-urls", there, "--initial-cluster", f"default={there}",
    ]  # fmt: skip
    stack.enter_context(processes.process(command, {"ETCDCTL_API": "3"}, folder / "etcd.log"))
    until(lambda: processes.answers(f"{here}/health"), "etcd to answer")
    return port


def drill(given: Servers, folder: Path, times: int) -> str:
    """What came of it. Raises AssertionError."""
    with ExitStack() as stack:
        port = etcd(folder, stack)
        nodes = [Node(folder, name, port) for name in ("one", "two")]
        for node in nodes:
            stack.callback(node.kill)
        nodes[0].start()
        until(lambda: nodes[0].has("leader"), "the first to lead", TAKES)
        nodes[1].start()
        until(lambda: nodes[0].has("leader") and nodes[1].has("synchronous"), "the second to follow", TAKES)
        with closing(psycopg2.connect(host=HOST, port=nodes[0].port, user="postgres", password="secret")) as first:
            first.autocommit = True
            with first.cursor() as cursor:
                cursor.execute("CREATE DATABASE shop")
        ports = ",".join(str(node.port) for node in nodes)
        url = f"postgresql+psycopg2://postgres:secret@/shop?host={HOST},{HOST}&port={ports}&target_session_attrs=read-write"
        engine = create_engine(url)
        migrate(engine)
        with engine.begin() as connection:
            connection.exec_driver_sql(RAN)
        engine.dispose()
        producer = Producer(url, redis_url=given.redis_url)
        stack.callback(producer.close)
        module, environ = "tests.end_to_end.shop", QUICK | {"EXECUTED": "1"}
        stack.enter_context(processes.worker(module, url, given.redis_url, folder / "worker", environ=environ))
        stack.enter_context(processes.beat(module, url, given.redis_url, folder / "beat", environ))
        ran_on: list[str] = []
        took = [_one(nodes, url, producer, ran_on) for _ in range(times)]
        rows = Rows(url)
        stack.callback(rows.close)
        until(lambda: finished(rows, producer), "all that was accepted to run", TAKES)
        until(
            lambda: {s for s, _ in rows(ENDED, tasks=ran_on)} <= {"completed", "failed"}, "the long ones to end", TAKES
        )
        assert set(rows(ENDED, tasks=ran_on)) == {("completed", 0)}, rows(ENDED, tasks=ran_on)
        assert rows("SELECT FROM celeriac.task_events WHERE kind IN ('rescue', 'late_finish')") == []
        tasks = len(producer.accepted) + len(ran_on)
        return f"{times} failovers of {max(took):.0f} s at most, {tasks} tasks: lost 0, losses 0, refused 0"


def _one(nodes: list[Node], url: str, producer: Producer, ran_on: list[str]) -> float:
    """Kill the leader while two tasks run, which go on through it; how long (seconds) nobody took writes."""
    leader = next(node for node in nodes if node.has("leader"))
    (other,) = (node for node in nodes if node is not leader)
    mine = [producer.app.send_task("slow", kwargs={"seconds": 45.0}).id for _ in range(2)]
    ran_on += mine
    before = Rows(url)
    running = "SELECT FROM celeriac.worker_tasks WHERE status = 'running' AND task_id = ANY (:tasks)"
    until(lambda: len(before(running, tasks=mine)) == 2, "the tasks to run")
    before.close()
    with producer.at_work():
        producer.more()
        began = time.monotonic()
        leader.kill()
        until(lambda: other.has("leader"), "the other to lead", TAKES)
        took = time.monotonic() - began
        producer.more()
    leader.start()
    until(lambda: leader.has("synchronous"), "the former leader to follow", TAKES)
    return took


def main(arguments: list[str]) -> int:
    if missing := [name for name in ("patroni", "etcd") if shutil.which(name) is None]:
        print(f"not tried: no {' and no '.join(missing)} here (Debian's packages patroni and etcd-server)")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="celeriac-patroni-", dir="/var/tmp"))
    folder.chmod(0o711)
    with servers() as given:
        print(drill(given, folder, int(arguments[0]) if arguments else 1))
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
