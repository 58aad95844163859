"""A Postgres that is there and does not answer hangs its clients for ever; the watchdog ends what hangs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from celeriac import Celeriac, Settings, local
from celeriac.local.valkey import free_port
from celeriac.metrics import process as port_of
from celeriac.schedules import Scheduler, watch
from celeriac.store import connections
from celeriac.worker.stops import TOGETHER
from tests import processes
from tests.end_to_end.conftest import QUICK, shop_server
from tests.end_to_end.test_probes import probed
from tests.processes import Rows, Running, until

#: The shop's `slow` is stale after 3 s, so the watchdog's limit is half of that.
DROPPED = "Postgres has not answered for 1.5 s"
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE application_name = :name AND state = 'idle'"
HEARTBEAT = "SELECT last_heartbeat_at FROM celeriac.workers"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[local.PostgresServer]:
    with shop_server(tmp_path_factory.mktemp("frozen")) as server:
        yield server
        go_on(server)


@pytest.fixture
def rows(server: local.PostgresServer) -> Iterator[Rows]:
    rows = Rows(server.url)
    yield rows
    rows.close()


@pytest.fixture
def worker(server: local.PostgresServer, redis_url: str, rows: Rows, tmp_path: Path) -> Iterator[Running]:
    log, environ = tmp_path / "worker.log", QUICK | {"WORKER_ID": "w"}
    with processes.worker("tests.end_to_end.shop", server.url, redis_url, log, "-c", "1", environ=environ) as running:
        yield running
    go_on(server)


def signalled(pid: int, sign: signal.Signals) -> None:
    """Backends come and go."""
    with suppress(ProcessLookupError):
        os.kill(pid, sign)


def go_on(server: local.PostgresServer) -> None:
    for pid in whole(server):
        signalled(pid, signal.SIGCONT)


def whole(server: local.PostgresServer) -> list[int]:
    """The postmaster, then whatever it has started."""
    postmaster = psutil.Process(int((server.data / "postmaster.pid").read_text().split()[0]))
    return [postmaster.pid, *(child.pid for child in postmaster.children(recursive=True))]


@contextmanager
def frozen(server: local.PostgresServer) -> Iterator[None]:
    pids = whole(server)
    for pid in pids:
        signalled(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            signalled(pid, signal.SIGCONT)


def later_heartbeat(rows: Rows) -> Callable[[], bool]:
    before = rows(HEARTBEAT)
    return lambda: rows(HEARTBEAT) > before


def test_a_server_that_freezes_is_let_go_and_found_again(
    worker: Running, server: local.PostgresServer, rows: Rows
) -> None:
    rows("""INSERT INTO worker_tasks (task_id, role, kwargs) VALUES ('t', 'slow', '{"seconds": 0.5}')""")
    until(lambda: rows("SELECT FROM ran"), "the task to begin")
    with frozen(server):
        until(lambda: DROPPED in worker.printed(), "the watchdog to end the heartbeat's connection")
    until(later_heartbeat(rows), "another heartbeat")
    until(lambda: rows.one("SELECT status = 'completed' FROM worker_tasks"), "the task to be completed")
    assert worker.process.poll() is None


def test_a_heartbeat_whose_connection_hangs_goes_on_over_another(worker: Running, rows: Rows) -> None:
    """Only its own backend is frozen, as if the network between them had gone: nobody will ever answer there."""
    until(lambda: froze_the_heartbeat(worker, rows), "the watchdog to end the heartbeat's connection")
    before = rows.one(HEARTBEAT)
    until(later_heartbeat(rows), "another heartbeat")
    assert rows.one(HEARTBEAT) > before  # type: ignore[operator]
    assert DROPPED in worker.printed()
    assert worker.process.poll() is None


def test_a_heartbeat_that_hangs_is_made_up_for_before_its_lease_is_over(
    server: local.PostgresServer, redis_url: str, rows: Rows, tmp_path: Path
) -> None:
    """It looks for work more rarely than its lease is long, and does not wait for that with the next heartbeat."""
    shop = "tests.end_to_end.shop"
    settings = {"WORKER_ID": "w", "CELERIAC_SWEEP_INTERVAL_MS": "100", "POLL_INTERVAL_MS": "20000"}
    with (
        processes.worker(shop, server.url, redis_url, tmp_path / "worker.log", "-c", "1", environ=settings) as worker,
        processes.beat(shop, server.url, redis_url, tmp_path / "beat.log", settings),
    ):
        rows("""INSERT INTO worker_tasks (task_id, role, kwargs) VALUES ('long', 'slow', '{"seconds": 6}')""")
        until(lambda: rows("SELECT FROM ran WHERE task_id = 'long'"), "the task to begin")
        until(lambda: froze_the_heartbeat(worker, rows), "the watchdog to end the heartbeat's connection")
        until(lambda: rows.one("SELECT status <> 'running' FROM worker_tasks WHERE task_id = 'long'"), "the end")
        go_on(server)
        assert DROPPED in worker.printed()
        assert rows("SELECT kind FROM celeriac.task_events WHERE kind = 'rescue'") == []


def froze_the_heartbeat(worker: Running, rows: Rows) -> bool:
    """Freezes a backend of the worker's; whether the heartbeat goes over it. What it does not go over is let go on."""
    hanging = frozen_while_idle(rows)
    later = later_heartbeat(rows)
    until(lambda: DROPPED in worker.printed() or later(), "the heartbeat to hang, or to come")
    if DROPPED in worker.printed():
        return True
    for pid in hanging:
        signalled(pid, signal.SIGCONT)
    return False


def frozen_while_idle(rows: Rows) -> list[int]:
    """In the midst of a heartbeat its row would stay locked."""
    found = [int(str(pid)) for (pid,) in rows(BACKENDS, name="celeriac w")]
    for pid in found:
        signalled(pid, signal.SIGSTOP)
    idle = [int(str(pid)) for (pid,) in rows(BACKENDS, name="celeriac w")]
    for pid in set(found) - set(idle):
        signalled(pid, signal.SIGCONT)
    return idle


@pytest.fixture
def beat(server: local.PostgresServer, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    """It ticks in a thread, with a minute's worth of patience in twelve seconds; what hangs is let go after three."""
    monkeypatch.setattr(port_of, "FRESH", 12.0)
    monkeypatch.setattr(watch, "LIMIT", 1.0)
    monkeypatch.setattr(connections, "CONNECT_TIMEOUT", 2)
    settings = Settings(database_url=server.url, redis_url=redis_url, metrics_address=str(free_port()))
    beat, over = Scheduler(Celeriac("frozen", settings=settings, set_as_current=False)), threading.Event()

    def tick() -> None:
        while not over.is_set():
            over.wait(min(beat.tick(), 0.1))

    thread = threading.Thread(target=tick)
    thread.start()
    yield beat
    over.set()
    thread.join()
    beat.close()
    beat.app.publisher.close()
    beat.app.database.dispose()


def test_a_beat_is_live_however_long_a_server_is_frozen_and_ticks_again(
    server: local.PostgresServer, beat: Scheduler
) -> None:
    """Who asked for another beat as this one hangs would get one that hangs as well."""
    port = int(str(beat.app.settings.metrics_address))
    until(lambda: probed(port) == (200, 200), "ticks")

    def ready_of_the_live() -> int | None:
        live, ready = probed(port)
        assert live != 503
        return ready

    with frozen(server):
        until(lambda: ready_of_the_live() == 503, "it to say that it takes nothing")
        moved = beat.moved_at
        until(lambda: ready_of_the_live() == 503 and beat.moved_at > moved, "it to let go once more")
        until(lambda: probed(port) == (200, 503), "it to be live")
    until(lambda: probed(port) == (200, 200), "ticks")


def test_who_insists_ends_a_worker_without_postgres(worker: Running, server: local.PostgresServer, rows: Rows) -> None:
    rows("""INSERT INTO worker_tasks (task_id, role, kwargs) VALUES ('insists', 'slow', '{"seconds": 600}')""")
    until(lambda: rows("SELECT FROM ran WHERE task_id = 'insists'"), "the task to begin")
    with frozen(server):
        worker.process.send_signal(signal.SIGTERM)
        until(lambda: "Warm shutdown" in worker.printed(), "the drain")
        first = time.monotonic()
        until(lambda: time.monotonic() - first > TOGETHER, "a signal to be another")
        worker.process.send_signal(signal.SIGINT)
        until(lambda: worker.process.poll() is not None, "the worker to end")
    assert worker.process.poll() == 0
