import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest
import redis
from psycopg2.extras import wait_select

from celeriac.local import LocalStackError, PostgresServer, ValkeyServer, valkey
from celeriac.local.server import Server
from tests.processes import until

Enter = Callable[..., Any]
Gone = Callable[..., bool]

START_BOTH_AND_WAIT = """
import sys
from pathlib import Path
from celeriac.local import PostgresServer, ValkeyServer
servers = [PostgresServer(Path(sys.argv[1]) / "postgres"), ValkeyServer(Path(sys.argv[1]) / "valkey")]
for server in servers:
    server.start()
print(*(server.pid for server in servers), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(tmp_path / "postgres")
    yield server
    server.stop()


@pytest.fixture
def tickets(tmp_path: Path) -> Iterator[ValkeyServer]:
    server = ValkeyServer(tmp_path / "valkey")
    yield server
    server.stop()


def connect(server: PostgresServer, **options: Any) -> Any:
    return psycopg2.connect(server.url.replace("+psycopg2", ""), **options)


def run(server: PostgresServer, statement: str) -> None:
    with closing(connect(server)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement)


def ping(server: ValkeyServer) -> bool:
    with closing(redis.Redis.from_url(server.url, socket_timeout=0.3, retry=None)) as client:
        return bool(client.ping())


@pytest.mark.parametrize("end", [PostgresServer.stop, PostgresServer.kill])
def test_postgres_starts_again_in_its_place(postgres: PostgresServer, end: Callable[[Server], None]) -> None:
    postgres.start()
    url = postgres.url
    run(postgres, "CREATE TABLE kept ()")
    end(postgres)
    assert not postgres.running
    postgres.start()
    assert postgres.url == url
    run(postgres, "TABLE kept")


@pytest.mark.parametrize("end", [ValkeyServer.stop, ValkeyServer.kill])
def test_valkey_starts_again_in_its_place(tickets: ValkeyServer, end: Callable[[Server], None]) -> None:
    tickets.start()
    url = tickets.url
    assert ping(tickets)
    end(tickets)
    assert not tickets.running
    tickets.start()
    assert tickets.url == url
    assert ping(tickets)


def test_a_killed_postgres_leaves_no_session(postgres: PostgresServer, gone: Gone) -> None:
    postgres.start()
    with closing(connect(postgres)) as connection:
        session = connection.info.backend_pid
        postgres.kill()
        assert gone([session])


def test_postgres_waits_for_the_sessions_that_outlive_its_main_process(postgres: PostgresServer, gone: Gone) -> None:
    postgres.start()
    pid = postgres.pid
    with closing(connect(postgres)) as connection:
        session = connection.info.backend_pid
        os.kill(session, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        assert gone([pid])
        threading.Timer(0.5, os.kill, [session, signal.SIGCONT]).start()
        postgres.start()
    run(postgres, "SELECT 1")


def test_a_paused_postgres_answers_no_session_until_resumed(postgres: PostgresServer) -> None:
    postgres.start()
    with closing(connect(postgres, async_=True)) as session:
        wait_select(session)
        with session.cursor() as cursor:
            postgres.pause()
            cursor.execute("SELECT 1")
            assert not select.select([session], [], [], 0.3)[0]
            postgres.resume()
            wait_select(session)
            assert cursor.fetchone() == (1,)


def test_a_paused_valkey_does_not_answer_until_resumed(tickets: ValkeyServer) -> None:
    tickets.start()
    tickets.pause()
    with pytest.raises(redis.TimeoutError):
        ping(tickets)
    tickets.resume()
    assert ping(tickets)


def test_a_paused_server_can_be_stopped(tickets: ValkeyServer) -> None:
    tickets.start()
    tickets.pause()
    tickets.stop()
    assert not tickets.running


def test_servers_end_with_the_process_that_started_them(enter: Enter, gone: Gone) -> None:
    parent = enter(START_BOTH_AND_WAIT)
    pids = [int(pid) for pid in parent.says()]
    parent.leave(signal.SIGKILL)
    assert gone(pids)


def test_a_pid_file_that_names_a_stranger_does_not_stop_postgres(postgres: PostgresServer) -> None:
    postgres.start()
    pid_file = postgres.data / "postmaster.pid"
    before = pid_file.read_text()
    postgres.stop()
    stranger = subprocess.Popen(["sleep", "60"], **postgres.account.spawn_options())
    try:
        pid_file.write_text("\n".join([str(stranger.pid), *before.splitlines()[1:]]) + "\n")
        postgres.start()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_port_taken_meanwhile_is_no_hindrance(tickets: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        ports = iter([taken.getsockname()[1], valkey.free_port()])
        monkeypatch.setattr(valkey, "free_port", lambda: next(ports))
        tickets.start()
    assert ping(tickets)


def test_a_given_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        server = ValkeyServer(tmp_path / "valkey", port=taken.getsockname()[1])
        with pytest.raises(LocalStackError, match="Address already in use"):
            server.start()
    assert not server.running


def test_postgres_that_cannot_make_its_data_reports_and_can_be_tried_again(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(PostgresServer, "_as_seen_from_inside", lambda *_: "/dev/null/data")
        with pytest.raises(LocalStackError, match=r"could not make its data folder[^$]*/dev/null/data"):
            postgres.start()
    assert not postgres.data.exists()
    postgres.start()
    run(postgres, "SELECT 1")


def test_a_program_that_cannot_be_run_is_reported(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celeriac.local.postgres.postgres_programs", lambda _: tmp_path)
    with pytest.raises(LocalStackError, match="Postgres cannot be run"):
        postgres.start()


@pytest.mark.parametrize("use", [lambda server: server.pid, lambda server: server.pause()])
def test_a_server_that_is_not_running_says_so(tickets: ValkeyServer, use: Callable[[Server], Any]) -> None:
    with pytest.raises(LocalStackError, match=r"call start\(\)"):
        use(tickets)


LEADER_LEAVES_ITS_THREADS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_server_on_its_way_out_does_not_run(tickets: ValkeyServer) -> None:
    """Killed, a process of several threads is no longer there for a moment before it can be waited for."""
    leaving = subprocess.Popen([sys.executable, "-c", LEADER_LEAVES_ITS_THREADS], stdout=subprocess.PIPE, text=True)
    with leaving:
        assert leaving.stdout is not None
        assert leaving.stdout.readline() == "up\n"
        tickets._process = leaving  # type: ignore[assignment]
        assert until(lambda: not tickets.running, "it to leave")
        assert leaving.poll() is None
        leaving.kill()
    tickets._process = None
