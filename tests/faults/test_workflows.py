"""Workflows under kills: no step is lost, none comes twice, and no body before its last member."""

from __future__ import annotations

import importlib
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from celery import chain, chord

from tests import processes
from tests.end_to_end.conftest import QUICK, shop_server
from tests.end_to_end.shop import RAN
from tests.processes import ROOT, Rows, Running, until
from tests.systems.stack import on_servers

Start = Callable[..., Running]

UNFINISHED = "SELECT count(*) FROM celeriac.tasks"


@contextmanager
def on(database_url: str, redis_url: str) -> Iterator[ModuleType]:
    """The module of the tasks, its app on these servers."""
    module = importlib.import_module("tests.faults.links")
    with on_servers(module.app, {**QUICK, "DATABASE_URL": database_url, "REDIS_URL": redis_url}) as app:
        app.register_roles()
        yield module


def worker(database_url: str, redis_url: str, log: Path, *arguments: str, **environ: str) -> Any:
    command = [sys.executable, "-m", "celery", "-A", "tests.faults.links", "worker", "-l", "INFO", *arguments]
    servers = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    return processes.process([*command, "--without-mingle", "--without-gossip"], {**QUICK, **servers, **environ}, log)


@pytest.fixture
def rows(database_url: str) -> Iterator[Rows]:
    rows = Rows(database_url)
    rows(RAN)
    yield rows
    rows.close()


@pytest.mark.timeout(900)
def test_a_chain_whose_workers_die_at_every_statement_has_each_link_once(
    database_url: str, redis_url: str, rows: Rows, tmp_path: Path, sized: Callable[[int, int], int]
) -> None:
    links, kills, first = sized(100, 6), tmp_path / "kills", sized(1, 14)
    kills.touch()
    with on(database_url, redis_url) as tasks:
        result = chain(tasks.link.s(0), *[tasks.link.s() for _ in range(links - 1)])()
        with worker(database_url, redis_url, tmp_path / "log", "-c", "1", KILLS=str(kills), FIRST=str(first)):
            until(lambda: rows.one(UNFINISHED) == 0, "the chain's end", patience=800)
        assert result.get(timeout=10) == links
    different = ", ".join(f"count(DISTINCT {column})" for column in ("task_id", "result", "parent_id"))
    assert rows(f"SELECT count(*), {different} FROM worker_tasks") == [(links, links, links, links - 1)]
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("completed",)]
    noted = kills.read_text().splitlines()
    assert len(noted) >= sized(40, 4)
    assert {line.split()[0] for line in noted} == {"before", "after"}


class Killer(threading.Thread):
    """Kills the older of two workers every so often; its successor starts at once. `every` in seconds, about.

    It has dice of its own: the process's are Hypothesis' to watch, whose tests come after this one.
    """

    def __init__(self, begin: Callable[[], Running], workers: list[Running], every: float) -> None:
        super().__init__(daemon=True)
        self.begin, self.workers, self.every = begin, workers, every
        self.killed = 0
        self.enough = threading.Event()
        self.dice = random.Random()

    def run(self) -> None:
        while not self.enough.wait(self.dice.uniform(0.5, 1.5) * self.every):
            self.workers.pop(0).kill()
            self.killed += 1
            self.workers.append(self.begin())

    def stop(self) -> None:
        self.enough.set()
        self.join()


@pytest.mark.timeout(900)
def test_a_chord_outlives_its_workers_and_a_restart_of_postgres(
    redis_url: str, tmp_path: Path, sized: Callable[[int, int], int]
) -> None:
    members, log = sized(100_000, 1_000), tmp_path / "log"
    with shop_server(tmp_path) as server, on(server.url, redis_url) as tasks, ExitStack() as stack:
        rows = stack.enter_context(closing(Rows(server.url)))
        result = chord([tasks.member.s(n) for n in range(members)], tasks.total.s())()
        assert rows.one(UNFINISHED) == members + 1

        def begin() -> Running:
            return stack.enter_context(worker(server.url, redis_url, log, "-c", "2"))

        began, pair = time.monotonic(), [begin(), begin()]
        until(lambda: rows.one(UNFINISHED) <= members, "the first of the members")
        # A worker lives for longer than it takes to start, on this machine as it is now: none would do anything else.
        killer = Killer(begin, pair, max(sized(3, 1), time.monotonic() - began))
        stack.callback(killer.stop)
        killer.start()
        until(lambda: rows.one(UNFINISHED) < members * 2 // 3, "a third of the members", patience=300)
        server.kill()
        server.start()
        rows = stack.enter_context(closing(Rows(server.url)))
        until(lambda: killer.killed > sized(2, 1), "some kills")
        killer.stop()
        until(lambda: rows.one(UNFINISHED) == 0, "the body's end", patience=600)
        assert result.get(timeout=10) == [members, sum(range(members))]
        assert rows("SELECT count(*), count(DISTINCT task_id) FROM ran WHERE role = 'total'") == [(1, 1)]
        last = "SELECT max(completed_at) FROM worker_tasks WHERE role = 'member'"
        assert rows(f"SELECT started_at >= ({last}) FROM worker_tasks WHERE role = 'total'") == [(True,)]
