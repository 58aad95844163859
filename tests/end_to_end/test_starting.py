"""A worker and a beat that start while Postgres is not there, or is not as it has to be."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import psutil
import pytest
from sqlalchemy import create_engine, make_url, text

from celeriac import local
from tests import processes
from tests.conftest import Servers
from tests.end_to_end.conftest import QUICK, shop_server
from tests.processes import ROOT, Rows, Running, until
from tests.renewed import Renewed

PASSWORD = "hunter2"
WAITING = "Waiting for Postgres: "


def starting(program: str, database_url: str, redis_url: str, log: Path) -> AbstractContextManager[Running]:
    """`celery worker` or `celery beat` of the shop, not waited for."""
    environ = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT), **QUICK}
    command = [sys.executable, "-m", "celery", "-A", "tests.end_to_end.shop", program, "-l", "INFO"]
    return processes.process([*command, *(["-c", "2"] if program == "worker" else [])], environ, log)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[local.PostgresServer]:
    with shop_server(tmp_path_factory.mktemp("starting")) as server:
        yield server


@pytest.fixture
def url(server: local.PostgresServer) -> Iterator[str]:
    """Of the server, which is down."""
    server.stop()
    yield secret_of(server)
    server.stop()


@pytest.fixture(scope="module")
def both_wait(
    server: local.PostgresServer, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Renewed[dict[str, Running]]]:
    shared = Renewed(lambda: waiters(server, servers.redis_url, tmp_path_factory.mktemp("waiting")))
    yield shared
    shared.close()


@pytest.fixture
def waiting(both_wait: Renewed[dict[str, Running]], request: pytest.FixtureRequest) -> dict[str, Running]:
    return both_wait.of(request.node.nodeid)


@contextmanager
def waiters(server: local.PostgresServer, redis_url: str, logs: Path) -> Iterator[dict[str, Running]]:
    """A worker and a beat: the server was down as they started, and is there since each said twice that it waits."""
    server.stop()
    with ExitStack() as stack:
        both = {
            program: stack.enter_context(starting(program, secret_of(server), redis_url, logs / program))
            for program in ("worker", "beat")
        }
        for running in both.values():
            until(lambda running=running: len(lines(running, WAITING)) > 1, "it to say so twice")  # type: ignore[misc]
        server.start()
        yield both


def secret_of(server: local.PostgresServer) -> str:
    """Its address, with a password."""
    return make_url(server.url).set(password=PASSWORD).render_as_string(hide_password=False)


def lines(running: Running, said: str) -> list[str]:
    return [line for line in running.printed().splitlines() if said in line]


def written(line: str) -> datetime:
    return datetime.fromisoformat(line[1:24].replace(",", "."))


def test_a_worker_waits_for_postgres_and_starts_once_it_answers(
    waiting: dict[str, Running], server: local.PostgresServer
) -> None:
    running = waiting["worker"]
    first, second = lines(running, WAITING)[:2]
    assert written(second) - written(first) > timedelta(seconds=4)
    assert str(server.socket_folder) in first
    rows = Rows(server.url)
    ((task,),) = rows("""INSERT INTO worker_tasks (task_id, role, kwargs)
        VALUES (gen_random_uuid(), 'add', '{"a": 1}') RETURNING task_id""")
    done = "SELECT status = 'completed' FROM worker_tasks WHERE task_id = :task"
    until(lambda: rows.one(done, task=task), "the task to be completed")
    rows.close()
    assert running.stop() == 0
    assert PASSWORD not in running.printed()
    assert "Traceback" not in running.printed()


def test_a_beat_waits_as_well(waiting: dict[str, Running]) -> None:
    running = waiting["beat"]
    first, second = lines(running, WAITING)[:2]
    assert written(second) - written(first) > timedelta(seconds=4)
    until(lambda: lines(running, "schedules in the beat config"), "it to begin")
    assert PASSWORD not in running.printed()
    assert "Traceback" not in running.printed()
    assert running.stop() == 0


def test_a_worker_waits_for_the_open_transaction_that_has_the_row_of_a_role(
    database_url: str, redis_url: str, rows: Rows, tmp_path: Path
) -> None:
    engine = create_engine(database_url)
    with engine.connect() as somebody:
        somebody.execute(text("INSERT INTO celeriac.roles (role, definition) VALUES ('add', '{}')"))
        with starting("worker", database_url, redis_url, tmp_path / "log") as running:
            until(lambda: lines(running, f"{WAITING}somebody's open transaction"), "it to say so")
            somebody.rollback()
            rows("""INSERT INTO worker_tasks (task_id, role, kwargs) VALUES ('t', 'add', '{"a": 1}')""")
            until(lambda: rows.one("SELECT status = 'completed' FROM worker_tasks"), "the task to be completed")
            assert "Traceback" not in running.printed()
    engine.dispose()


OTHERS = pytest.mark.nightly("the other signal of each program")


@pytest.mark.parametrize(
    ("program", "sent", "status"),
    [
        ("worker", "SIGTERM", 0), pytest.param("worker", "SIGINT", 1, marks=OTHERS),
        ("beat", "SIGINT", 0), pytest.param("beat", "SIGTERM", 0, marks=OTHERS),
    ],
)  # fmt: skip
def test_who_waits_ends_when_told_to(
    url: str, redis_url: str, tmp_path: Path, program: str, sent: str, status: int
) -> None:
    """With Celery's statuses."""
    with starting(program, url, redis_url, tmp_path / "log") as running:
        until(lambda: lines(running, WAITING), "it to wait")
        children = [psutil.Process(pid) for pid in running.children()]
        running.process.send_signal(signal.Signals[sent])
        assert running.process.wait(20) == status
        until(lambda: not any(child.is_running() for child in children), "its children to be gone")
    # Celery's beat raises in the signal's handler, which Python tells of where it interrupts a callback.
    assert program == "beat" or "Traceback" not in running.printed()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            "UPDATE celeriac.version SET version_num = 'later_0001', runs_from = 'later_0001'",
            "the database is newer than this code",
        ),
        ("DELETE FROM celeriac.version", "run `celeriac migrate`"),
    ],
    ids=["newer", "older"],
)
def test_another_schema_than_the_codes_is_refused_in_a_line(
    database_url: str, redis_url: str, rows: Rows, tmp_path: Path, spoil: str, says: str
) -> None:
    rows(spoil)
    with starting("worker", database_url, redis_url, tmp_path / "log") as running:
        assert running.process.wait(30) == 1
    (told,) = lines(running, "CRITICAL")
    assert says in told
    assert "Traceback" not in running.printed()
