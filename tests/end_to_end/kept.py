"""A database and a worker that the tests of a module share, one after the other: a worker's start costs a second.

A module that imports these fixtures has them in the place of its own. A test that leaves more than a past behind it, as
a task that runs on, a limit that was set or a worker that ended, has both made anew for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from tests import processes
from tests.conftest import Servers, Stock
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.shop import RAN
from tests.matrix.pooled import through
from tests.processes import Rows, Running, until

__all__ = ["alone", "database_url", "kept", "redis_url", "worker"]

SHOP = "tests.end_to_end.shop"

UNFINISHED = "SELECT FROM celeriac.tasks UNION ALL SELECT FROM celeriac.tickets"

#: What is set for all tasks to come.
SETTINGS = """
SELECT role, paused, CAST(definition AS text) FROM celeriac.roles
UNION ALL SELECT role, is_told, concat_ws(' ', rate_limit, timeout, hard_timeout) FROM celeriac.role_limits
UNION ALL SELECT account, paused, concat_ws(' ', weight, cap) FROM celeriac.account_policies
UNION ALL SELECT name, enabled, cron_expression FROM celeriac.scheduled_jobs
ORDER BY 1, 2, 3
"""

#: Tables of what was.
PAST = (
    "history", "task_events", "task_logs", "passes", "minutes", "outcomes", "failure_marks", "audit", "locks", "looks",
    "barriers", "joins", "group_results", "intake", "adopted", "dead_letters",
)  # fmt: skip

#: Seconds that what ends with a test may take.
ENDING = 1.0


class Kept:
    """`url` names a database that is as new. Of its worker there is one, with the options that were wanted last."""

    def __init__(self, stock: Stock, redis_url: str, folder: Path) -> None:
        self._stock, self.redis_url, self._folder = stock, redis_url, folder
        self._life, self._workers = ExitStack(), ExitStack()
        self._begin()

    def _begin(self) -> None:
        with redis.Redis.from_url(self.redis_url) as client:
            client.flushdb()
        self.url = through(self._life.enter_context(self._stock.taken()).url)
        self.rows = Rows(self.url)
        self._life.callback(self.rows.close)
        self.rows(RAN)
        self._options: object = None
        self._running: Running | None = None
        self._settings: list[tuple[object, ...]] = []
        self.is_spoilt = False

    def worker(self, module: str, arguments: tuple[str, ...], environ: Mapping[str, str]) -> Running:
        """The one with these options. A test that enqueues before it has one wants to be `alone`."""
        if self._running:
            assert not self.rows(f"{UNFINISHED} UNION ALL SELECT FROM celeriac.history"), (
                "it may have been the last one's"
            )
        arguments = arguments or ("-c", "2")
        if self._options != (options := (module, arguments, dict(environ))):
            self._start(module, arguments, environ)
            self._options, self._settings = options, self.rows(SETTINGS)
        assert self._running
        self._running.since = self._running.log.stat().st_size
        return self._running

    def _start(self, module: str, arguments: tuple[str, ...], environ: Mapping[str, str]) -> None:
        self._workers.close()
        self.rows("DELETE FROM celeriac.workers")
        log = self._folder / f"{module}.log"
        log.write_text("")
        given = {**QUICK, **environ}
        self._running = self._workers.enter_context(
            processes.worker(module, self.url, self.redis_url, log, *arguments, environ=given)
        )

    def end_test(self) -> None:
        """Forget what was, or begin anew."""
        if self.is_spoilt or not self._is_as_it_was():
            self.renew()
        for table in PAST:
            self.rows(f"DELETE FROM celeriac.{table}")
        self.rows("DELETE FROM ran")

    def _is_as_it_was(self) -> bool:
        self.rows("DELETE FROM worker_tasks WHERE status = 'pending'")
        try:
            until(lambda: not self.rows(UNFINISHED), "what ends to end", ENDING)
        except AssertionError:
            return False
        running = self._running
        return running is not None and running.process.poll() is None and self.rows(SETTINGS) == self._settings

    def renew(self) -> None:
        self.close()
        self._begin()

    def close(self) -> None:
        self._workers.close()
        self._life.close()


@pytest.fixture(scope="module")
def kept(servers: Servers, stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    kept = Kept(stock, servers.redis_url, tmp_path_factory.mktemp("kept"))
    yield kept
    kept.close()


@pytest.fixture
def alone() -> None:
    """For a test that enqueues before there is a worker, or takes one apart."""


@pytest.fixture
def database_url(kept: Kept, request: pytest.FixtureRequest) -> Iterator[str]:
    if "alone" in request.fixturenames:
        kept.renew()
    yield kept.url
    kept.end_test()


@pytest.fixture
def redis_url(kept: Kept, database_url: str) -> str:
    return kept.redis_url


@pytest.fixture
def worker(kept: Kept, database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts workers. The first is kept for the tests that come, the others end with the test."""
    with ExitStack() as stack:
        started: list[Running] = []

        def start(*arguments: str, module: str = SHOP, **environ: str) -> Running:
            if not started:
                started.append(kept.worker(module, arguments, environ))
                return started[0]
            kept.is_spoilt = True
            log = tmp_path / f"{module}.{len(started)}.log"
            given = {**QUICK, **environ}
            other = processes.worker(module, database_url, redis_url, log, *arguments, environ=given)
            started.append(stack.enter_context(other))
            return started[-1]

        yield start
