import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest
import redis
import sqlalchemy

from celeriac.local import LocalStackError, PostgresServer, join, join_temporary, processes
from celeriac.local.guard import listen, socket_path
from tests.local.conftest import StackProcesses

Enter = Callable[..., Any]
Gone = Callable[..., bool]

OTHER_SIGNALS = [
    pytest.param(number, marks=pytest.mark.nightly("ends as by itself and as by SIGKILL, which run by day"))
    for number in (signal.SIGINT, signal.SIGTERM)
]

JOIN_FORK_AND_DIE = """
import os, sys
from pathlib import Path
from celeriac.local import join
join(Path(sys.argv[1]), linger=0)
if os.fork():
    os._exit(0)
print("forked", flush=True)
sys.stdin.read()
"""
JOIN_SPAWN_AND_DIE = """
import os, subprocess, sys
from pathlib import Path
from celeriac.local import join
join(Path(sys.argv[1]), linger=0)
subprocess.Popen([sys.executable, "-c", "import sys; print('spawned', flush=True); sys.stdin.read()"],
                 close_fds=False)
os._exit(0)
"""


def query(database_url: str, statement: str) -> Any:
    engine = sqlalchemy.create_engine(database_url)
    with engine.begin() as connection:
        result = connection.execute(sqlalchemy.text(statement))
        value = result.scalar() if result.returns_rows else None
    engine.dispose()
    return value


def answers(redis_url: str) -> bool:
    with closing(redis.Redis.from_url(redis_url)) as client:
        return bool(client.ping())


def test_the_urls_work(data_dir: Path) -> None:
    with join(data_dir) as stack:
        with closing(psycopg2.connect(stack.database_url.replace("+psycopg2", ""))) as connection:
            assert connection.server_version >= 180000
        assert query(stack.database_url, "SELECT current_database()") == "celeriac"
        assert answers(stack.redis_url)


def test_the_database_is_durable_and_private(data_dir: Path) -> None:
    promised = {"fsync": "on", "TimeZone": "UTC", "max_connections": "200", "listen_addresses": ""}
    with join(data_dir, redis=False) as stack:
        assert {name: query(stack.database_url, f"SHOW {name}") for name in promised} == promised


def test_processes_share_one_stack(data_dir: Path, enter: Enter) -> None:
    with join(data_dir) as stack:
        assert enter().says() == [stack.database_url, stack.redis_url]


def test_processes_that_come_at_once_share_one_stack(enter: Enter, stack_processes: Any) -> None:
    members = [enter() for _ in range(4)]
    assert len({tuple(member.says()) for member in members}) == 1
    assert len(stack_processes.servers) == 2


def test_the_stack_stays_for_the_last_member(data_dir: Path, enter: Enter, stack_processes: Any, gone: Gone) -> None:
    member = enter()
    member.says()
    stack = join(data_dir)
    pids = stack_processes.all()
    member.leave()
    assert not gone(pids, seconds=1)
    assert answers(stack.redis_url)
    stack.close()
    assert gone(pids)


@pytest.mark.parametrize("number", [None, signal.SIGKILL, *OTHER_SIGNALS])
def test_nothing_runs_on_however_the_last_member_goes(
    enter: Enter, stack_processes: Any, gone: Gone, number: signal.Signals | None
) -> None:
    member = enter()
    member.says()
    pids = stack_processes.all()
    member.leave(number)
    assert gone(pids)


def test_a_temporary_stack_is_gone_with_its_folder_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with join_temporary() as stack:
        (folder,) = tmp_path.iterdir()
        servers = StackProcesses(folder).servers
        query(stack.database_url, "CREATE TABLE written AS SELECT FROM generate_series(1, 300000)")
    assert len(servers) == 2
    assert not any(map(processes.is_alive, servers))
    assert not list(tmp_path.iterdir())


def test_data_stay_between_runs(data_dir: Path, stack_processes: Any, gone: Gone) -> None:
    with join(data_dir, linger=0) as stack:
        query(stack.database_url, "CREATE TABLE kept AS SELECT 42 AS answer")
        pids = stack_processes.all()
    assert gone(pids)
    with join(data_dir) as stack:
        assert query(stack.database_url, "SELECT answer FROM kept") == 42


def test_commands_in_quick_succession_find_the_servers_running(data_dir: Path, stack_processes: Any) -> None:
    join(data_dir, linger=10).close()
    before = stack_processes.all()
    join(data_dir).close()
    assert stack_processes.all() == before
    os.kill(stack_processes.guard, signal.SIGTERM)


def test_a_guard_that_is_just_leaving_is_waited_for(data_dir: Path) -> None:
    for _ in range(5):
        with join(data_dir, postgres=False, linger=0) as stack:
            assert answers(stack.redis_url)


def test_a_guard_that_leaves_without_an_answer_is_replaced(data_dir: Path) -> None:
    data_dir.mkdir()
    path = socket_path(data_dir)
    path.parent.mkdir(exist_ok=True)
    with closing(listen(path)) as door:
        door.setblocking(True)
        leaving = threading.Thread(target=hear_and_close, args=[door, path])
        leaving.start()
        with join(data_dir, postgres=False) as stack:
            assert answers(stack.redis_url)
        leaving.join()


def hear_and_close(door: socket.socket, path: Path) -> None:
    with door.accept()[0] as connection:
        connection.recv(4096)
        path.unlink()


def test_a_killed_guard_leaves_nothing_and_the_next_join_works(
    data_dir: Path, enter: Enter, stack_processes: Any, gone: Gone
) -> None:
    _, redis_url = enter().says()
    pids = stack_processes.all()
    os.kill(stack_processes.guard, signal.SIGKILL)
    with join(data_dir) as stack:
        assert gone(pids)
        assert query(stack.database_url, "SELECT 1") == 1
        assert stack.redis_url == redis_url


def test_a_guard_told_to_end_stops_its_servers(data_dir: Path, stack_processes: Any, gone: Gone) -> None:
    with join(data_dir):
        pids = stack_processes.all()
        os.kill(stack_processes.guard, signal.SIGTERM)
        assert gone(pids)


def test_a_postgres_that_nobody_guards_is_replaced(data_dir: Path, gone: Gone) -> None:
    orphan = PostgresServer(data_dir / "postgres")
    orphan.start()
    pid = orphan.pid
    with join(data_dir) as stack:
        assert gone([pid])
        assert query(stack.database_url, "SELECT 1") == 1
    assert not orphan.running


def test_a_failed_start_tells_why_and_leaves_nothing(data_dir: Path, stack_processes: Any, gone: Gone) -> None:
    with join(data_dir, linger=0):
        pids = stack_processes.all()
    assert gone(pids)
    settings = data_dir / "postgres" / "data" / "postgresql.conf"
    sound = settings.read_text()
    settings.write_text("no_such_setting = 1\n")
    with pytest.raises(LocalStackError, match=r"^Postgres ended while starting[^$]*no_such_setting"):
        join(data_dir)
    assert gone([stack_processes.guard])
    settings.write_text(sound)
    with join(data_dir) as stack:
        assert query(stack.database_url, "SELECT 1") == 1


def test_a_guard_that_cannot_start_tells_why(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celeriac.local.membership.RUN_GUARD", "raise SystemExit('no guard today')")
    with pytest.raises(LocalStackError, match="no guard today"):
        join(data_dir)


def test_only_the_server_asked_for_is_started(data_dir: Path, stack_processes: Any) -> None:
    with join(data_dir, postgres=False) as tickets_only:
        assert tickets_only.database_url == ""
        assert len(stack_processes.servers) == 1
        with join(data_dir) as both:
            assert both.redis_url == tickets_only.redis_url
            assert query(both.database_url, "SELECT 1") == 1


def test_a_server_that_died_is_started_again_for_the_next_member(
    data_dir: Path, stack_processes: Any, gone: Gone
) -> None:
    with join(data_dir, postgres=False) as first:
        valkey = stack_processes.servers[0]
        os.kill(valkey, signal.SIGKILL)
        assert gone([valkey])
        with join(data_dir, postgres=False) as second:
            assert answers(second.redis_url)
            assert second.redis_url == first.redis_url


def test_a_forked_child_keeps_the_stack(enter: Enter, stack_processes: Any, gone: Gone) -> None:
    member = enter(JOIN_FORK_AND_DIE)
    assert member.says() == ["forked"]
    member.process.wait()
    pids = stack_processes.all()
    assert not gone(pids, seconds=1)
    member.leave()
    assert gone(pids)


def test_another_program_does_not_keep_the_stack(enter: Enter, stack_processes: Any, gone: Gone) -> None:
    member = enter(JOIN_SPAWN_AND_DIE)
    pids = stack_processes.all() if member.says() == ["spawned"] else []
    assert not pids or gone(pids)
    member.leave()


def test_a_path_too_long_for_a_socket_is_no_hindrance(tmp_path: Path, gone: Gone) -> None:
    folder = tmp_path / ("long" * 30)
    with join(folder, linger=0) as stack:
        assert query(stack.database_url, "SELECT 1") == 1
        guard = int((folder / "guard.lock").read_text())
    assert gone([guard])


def test_closing_twice_is_closing_once(data_dir: Path) -> None:
    with join(data_dir, postgres=False) as other:
        stack = join(data_dir, postgres=False)
        stack.close()
        stack.close()
        assert answers(other.redis_url), "the other member is still counted"
