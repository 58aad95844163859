"""A database and a worker that the tests of a module share, one after the other: a worker's start costs a second.

A module that imports these fixtures has them in the place of its own. A test that leaves more than a past behind it, as
a task that runs on, a limit that was set, a worker that ended or one that was told something by remote control, has
both made anew for the next one.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from celery.worker.control import Panel

from tests import processes
from tests.conftest import Servers, Stock
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.shop import RAN
from tests.matrix.pooled import through
from tests.processes import Rows, Running, until

__all__ = ["alone", "database_url", "kept", "redis_url", "worker"]

SHOP = "tests.end_to_end.shop"

UNFINISHED = "SELECT FROM celeriac.tasks UNION ALL SELECT FROM celeriac.tickets"

#: What is set for all tasks to come, of tables whose rows have times and figures that a worker writes as well.
SETTINGS = """
SELECT role, paused, CAST(definition AS text) FROM celeriac.roles
UNION ALL SELECT role, is_told, concat_ws(' ', rate_limit, timeout, hard_timeout) FROM celeriac.role_limits
UNION ALL SELECT account, paused, concat_ws(' ', weight, cap) FROM celeriac.account_policies
UNION ALL SELECT name, enabled, cron_expression FROM celeriac.scheduled_jobs
ORDER BY 1, 2, 3
"""

SET = ("roles", "role_limits", "account_policies", "scheduled_jobs")

#: Tables of what was: they are emptied.
PAST = (
    "history", "ended", "task_events", "task_logs", "passes", "minutes", "minutes_in_all", "outcomes", "failure_marks",
    "audit", "locks", "looks", "barriers", "joins", "group_results", "intake", "adopted", "dead_letters", "repairs",
    "sweep_runs", "worker_samples", "ticket_samples", "alerts", "alerts_pending", "bulk_tasks", "bulk_actions",
    "day_changes",
)  # fmt: skip

#: Tables that a worker goes on writing by itself: where it is, and how far it has come.
ITS_OWN = ("workers", "batchers", "queue_states", "ring", "minutes_until", "days", "day_roles", "role_totals")

#: All tables; what is in none of the lists has to be as it was.
TABLES = """
SELECT c.relname, CAST(c.oid AS regclass)::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname IN ('celeriac', 'public') AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 2
"""

CONTENT = "SELECT '{0}', md5(string_agg(CAST(t AS text), ' ' ORDER BY CAST(t AS text))) FROM {0} t"

#: What remote control may tell a worker without changing it: what asks, and what is done to rows.
OF_ROWS = frozenset({"revoke", "terminate", "revoke_by_stamped_headers", "rate_limit", "time_limit"})

#: Keys of Redis that a worker has by itself: its mailboxes, and how far it has told of what ended.
ITS_KEYS = ("_kombu.binding.", "celeriac:herald")

#: Seconds that what ends with a test may take; and for which a log that is at rest has not been written.
ENDING, REST = 1.0, 0.1


class Kept:
    """`url` names a database that is as new. Of its worker there is one, with the options that were wanted last."""

    def __init__(self, stock: Stock, redis_url: str, folder: Path) -> None:
        self._stock, self.redis_url, self._folder = stock, redis_url, folder
        self._life, self._workers = ExitStack(), ExitStack()
        self._begin()

    def _begin(self) -> None:
        self.redis = self._life.enter_context(redis.Redis.from_url(self.redis_url))
        self.redis.flushdb()
        self._told = self._life.enter_context(self.redis.pubsub())
        self._told.psubscribe(f"/{self.redis.get_connection_kwargs()['db']}.*.pidbox")
        self.url = through(self._life.enter_context(self._stock.taken()).url)
        self.rows = Rows(self.url)
        self._life.callback(self.rows.close)
        self.rows(RAN)
        others = [name for table, name in self.rows(TABLES) if table not in (*SET, *PAST, *ITS_OWN, "ran")]
        self._contents = " UNION ALL ".join(CONTENT.format(name) for name in others)
        self._options: object = None
        self._running: Running | None = None
        self._state: list[tuple[object, ...]] = []
        self.is_spoilt = False

    def worker(self, module: str, arguments: tuple[str, ...], environ: Mapping[str, str]) -> Running:
        """Return the one with these options. A test that enqueues before it has one wants to be `alone`."""
        if self._running:
            assert not self.rows(f"{UNFINISHED} UNION ALL SELECT FROM celeriac.history"), (
                "it may have been the last one's"
            )
        arguments = arguments or ("-c", "2")
        if self._options != (options := (module, arguments, dict(environ))):
            self._start(module, arguments, environ)
            self._options, self._state = options, self._set()
        else:
            until(self._is_at_rest, "the worker's log to be at rest")
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

    def _set(self) -> list[tuple[object, ...]]:
        return sorted([*self.rows(SETTINGS), *self.rows(self._contents)], key=repr)  # rows come in any order

    def _is_at_rest(self) -> bool:
        """Whether the worker has printed what it had to say of the last test."""
        assert self._running
        return time.time() - self._running.log.stat().st_mtime > REST

    def end_test(self) -> None:
        """Forget what was, or begin anew."""
        if self.is_spoilt or self._was_told() or not self._is_as_it_was():
            self.renew()
            return
        for table in PAST:
            self.rows(f"DELETE FROM celeriac.{table}")
        self.rows("DELETE FROM ran")
        if theirs := [key for key in self.redis.scan_iter() if not key.decode().startswith(ITS_KEYS)]:
            self.redis.delete(*theirs)

    def _was_told(self) -> bool:
        """Whether somebody has told the worker by remote control what the database does not show."""
        sent = iter(self._told.get_message, None)
        told = {command_of(message["data"]) for message in sent if message["type"] == "pmessage"}
        return bool(told - OF_ROWS - {None})

    def _is_as_it_was(self) -> bool:
        self.rows("DELETE FROM worker_tasks WHERE status = 'pending'")
        try:
            until(lambda: not self.rows(UNFINISHED), "what ends to end", ENDING)
        except AssertionError:
            return False
        running = self._running
        return running is not None and running.process.poll() is None and self._set() == self._state

    def renew(self) -> None:
        self.close()
        self._begin()

    def close(self) -> None:
        self._workers.close()
        self._life.close()


def command_of(sent: bytes) -> str | None:
    """Return the command of a message for workers' mailboxes; None if it asks, and changes nothing."""
    body = json.loads(b64decode(json.loads(sent)["body"]))
    known = Panel.meta.get(body["method"])
    return None if known is not None and known.type == "inspect" else body["method"]


@pytest.fixture(scope="module")
def kept(servers: Servers, stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    kept = Kept(stock, servers.redis_url, tmp_path_factory.mktemp("kept"))
    yield kept
    kept.close()


@pytest.fixture
def alone() -> None:
    """For a test that enqueues or sets a limit before there is a worker, takes one apart, or counts all it has done."""


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
