"""Another user of the machine gets into neither of the embedded servers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import psycopg2
import pytest
import redis

from celeriac.local import LocalStackError, PostgresServer, ValkeyServer
from celeriac.local.account import Account
from celeriac.testing.servers import memory

#: Whoever runs as `nobody`, as many a daemon does; who is nobody of ours where the servers are the caller's own.
NOBODY = Account.with_name() if os.geteuid() == 0 else Account(54321, 54321)


ROOTS = pytest.mark.skipif(os.geteuid() != 0, reason="others' servers are their own")


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    server = ValkeyServer(tmp_path / "valkey")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(tmp_path / "postgres")
    server.start()
    yield server
    server.stop()


def test_the_port_of_valkey_wants_a_password_that_nobody_else_can_read(valkey: ValkeyServer) -> None:
    with closing(redis.Redis("127.0.0.1", valkey.port or 0)) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.publish("celery.pidbox", "")
    file = valkey.folder / "password"
    assert (file.stat().st_uid, file.stat().st_mode & 0o777) == (os.geteuid(), 0o600)
    shown = subprocess.run(
        ["ps", "-ww", "-p", str(valkey.pid), "-o", "args="], capture_output=True, text=True, check=True
    )
    assert valkey.password not in shown.stdout
    assert [path for path in valkey.home.rglob("*") if path.is_file() and valkey.password in path.read_text()] == []
    assert valkey.password not in valkey.log.read_text()


def test_its_password_stays_the_same(valkey: ValkeyServer) -> None:
    assert ValkeyServer(valkey.folder).password == valkey.password
    with closing(redis.Redis.from_url(valkey.url)) as client:
        assert client.ping()


def test_what_runs_as_nobody_is_not_let_into_postgres(postgres: PostgresServer) -> None:
    """Whoever enters the socket's folder is its superuser: it is the servers' own, as their data is."""
    for folder in (postgres.socket_folder, postgres.data):
        assert not NOBODY.can_enter(folder)
        assert folder.stat().st_uid != NOBODY.uid
    if os.geteuid() == 0:
        seen = subprocess.run(
            ["ls", postgres.socket_folder], user=NOBODY.uid, capture_output=True, text=True, check=False
        )
        assert "Permission denied" in seen.stderr


@ROOTS
def test_root_makes_its_data_without_what_linux_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celeriac.local.postgres.sys", SimpleNamespace(platform="darwin"))
    with TemporaryDirectory(dir=memory() or "/var/tmp") as folder:
        Path(folder).chmod(0o711)
        server = PostgresServer(Path(folder) / "postgres")
        server.start()
        with closing(psycopg2.connect(server.url.replace("+psycopg2", ""))):
            server.stop()


@ROOTS
def test_root_reads_what_to_do_where_there_is_no_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pwd.getpwnam", {}.__getitem__)
    with pytest.raises(LocalStackError, match="the user nobody, who is missing here: add that user, or set DATABASE"):
        PostgresServer(tmp_path / "postgres").start()


@ROOTS
def test_what_an_earlier_release_ran_as_nobody_is_taken_over(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / "postgres")
    server.start()
    with closing(psycopg2.connect(server.url.replace("+psycopg2", ""))) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE kept ()")
        connection.commit()
    server.stop()
    for path in [server.data, *server.data.rglob("*")]:
        os.chown(path, NOBODY.uid, NOBODY.gid, follow_symlinks=False)
    server.start()
    with closing(psycopg2.connect(server.url.replace("+psycopg2", ""))) as connection, connection.cursor() as cursor:
        cursor.execute("TABLE kept")
    server.stop()
