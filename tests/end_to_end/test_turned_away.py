"""Postgres lets no new connection in, and the open ones live: tasks that open their session wait, and none fails."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from celeriac import local
from celeriac.local import postgres
from celeriac.local.valkey import free_port
from tests import processes
from tests.end_to_end.conftest import QUICK, shop_server
from tests.end_to_end.tls import Proxy, proxy
from tests.processes import Rows, Running, until

LOGIN, PASSWORD = "one_worker", "its password"

TASKS = 5

BY_STATE = "SELECT status, losses, retry_count, count(*) FROM worker_tasks WHERE role = 'asks' GROUP BY 1, 2, 3"
TURNED_AWAY = "SELECT count(*) FROM worker_tasks WHERE role = 'asks' AND waits_for = 'time' AND error_message <> ''"
LEFT = "SELECT count(*) FROM tasks WHERE role = 'asks'"
ENQUEUE = "SELECT celeriac.enqueue(:role, '{}')"
NAMED = "SELECT min(error_message) FROM worker_tasks WHERE role = 'asks'"


@dataclass
class Place:
    """A server that one worker connects to by TCP, under TLS, as a login of its own."""

    server: local.PostgresServer
    proxy: Proxy
    rows: Rows
    folder: Path

    def url(self) -> str:
        where = f"127.0.0.1:{self.proxy.port}/{postgres.DATABASE}?sslmode=verify-ca&sslrootcert={self.proxy.root}"
        return f"postgresql+psycopg2://{LOGIN}:{PASSWORD.replace(' ', '%20')}@{where}"

    def admit(self, line: str) -> None:
        """Let logins in over TCP as this line of pg_hba.conf says."""
        written = self.server.data / "pg_hba.conf"
        written.write_text(f"local all all trust\n{line}\n")
        self.rows("SELECT pg_reload_conf()")

    def astray(self, **where: object) -> None:
        path = self.folder / "astray"
        path.with_suffix(".new").write_text(json.dumps(where))
        path.with_suffix(".new").rename(path)


ADMITTED = f"host all {LOGIN} 127.0.0.1/32 scram-sha-256"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("turned_away")
    with pytest.MonkeyPatch.context() as changed, ExitStack() as stack:
        changed.setattr(postgres, "PORT", free_port())
        changed.setattr(postgres, "SETTINGS", {**postgres.SETTINGS, "listen_addresses": "127.0.0.1"})
        server = stack.enter_context(shop_server(folder))
        rows = Rows(server.url)
        stack.callback(rows.close)
        made = Place(server, stack.enter_context(proxy(folder, postgres.PORT)), rows, folder)
        rows(f"CREATE ROLE {LOGIN} SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
        made.admit(ADMITTED)
        made.astray()
        yield made


Cause = Callable[[Place], object]


#: What is done to whoever connects, what makes up for it, and what the driver calls it.
CAUSES: dict[str, tuple[Cause, Cause, str]] = {
    "its login is revoked": (
        lambda place: place.rows(f"ALTER ROLE {LOGIN} NOLOGIN"),
        lambda place: place.rows(f"ALTER ROLE {LOGIN} LOGIN"),
        "is not permitted to log in",
    ),
    "its password is changed": (
        lambda place: place.rows(f"ALTER ROLE {LOGIN} PASSWORD 'another'"),
        lambda place: place.rows(f"ALTER ROLE {LOGIN} PASSWORD '{PASSWORD}'"),
        "password authentication failed",
    ),
    "pg_hba has no line for it": (
        lambda place: place.admit(""),
        lambda place: place.admit(ADMITTED),
        "no pg_hba.conf entry",
    ),
    "its host has no address": (
        lambda place: place.astray(host="no-such-host.invalid"),
        lambda place: place.astray(),
        "could not translate host name",
    ),
    "a proxy refuses": (
        lambda place: place.astray(port=free_port()),
        lambda place: place.astray(),
        "Connection refused",
    ),
    "the certificate is over": (
        lambda place: place.proxy.certify(days=-1),
        lambda place: place.proxy.certify(days=1),
        "certificate",
    ),
}


@contextmanager
def connected(place: Place, redis_url: str, log: Path) -> Iterator[Running]:
    """A worker whose one process has a connection of the engine's, and none for sessions."""
    place.rows("DELETE FROM worker_tasks")
    environ = {**QUICK, "ASTRAY": str(place.folder / "astray")}
    with processes.worker(
        "tests.end_to_end.astray", place.url(), redis_url, log, "-c", "1", environ=environ
    ) as running:
        place.rows(ENQUEUE, role="plain")
        done = "SELECT count(*) FROM worker_tasks WHERE role = 'plain' AND status = 'completed'"
        until(lambda: place.rows.one(done) == 1, "the pool's process to be connected")
        yield running


def enqueue(place: Place) -> None:
    for _ in range(TASKS):
        place.rows(ENQUEUE, role="asks")


def each_is_done(place: Place, running: Running) -> None:
    until(lambda: place.rows.one(LEFT) == 0, "each to be done")
    assert place.rows(BY_STATE) == [("completed", 0, 0, TASKS)]
    assert running.process.poll() is None


#: By day one of the server's, one of the way there and one of TLS.
BY_DAY = ("its login is revoked", "a proxy refuses", "the certificate is over")

BY_NIGHT = pytest.mark.nightly("the same for another cause")


@pytest.mark.parametrize(
    "cause", [cause if cause in BY_DAY else pytest.param(cause, marks=BY_NIGHT) for cause in CAUSES]
)
def test_tasks_that_open_their_session_wait_until_they_are_let_in(
    place: Place, redis_url: str, tmp_path: Path, cause: str
) -> None:
    begin, end, words = CAUSES[cause]
    with connected(place, redis_url, tmp_path / "log") as running:
        begin(place)
        try:
            enqueue(place)
            until(lambda: place.rows.one(TURNED_AWAY) == TASKS, "each to be turned away")
            assert words in str(place.rows.one(NAMED))
        finally:
            end(place)
        each_is_done(place, running)


def test_a_process_without_a_descriptor_for_a_session_makes_way_and_fails_no_task(
    place: Place, redis_url: str, tmp_path: Path
) -> None:
    with connected(place, redis_url, tmp_path / "log") as running:
        (pid,) = running.children()
        own, hard = len(os.listdir(f"/proc/{pid}/fd")), resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (own, hard))
        enqueue(place)
        each_is_done(place, running)
        assert "Hardly a file descriptor is left: this process makes way for another" in running.printed()
