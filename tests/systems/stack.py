"""The application's processes on a test's servers, and the sandbox they talk to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import sandbox
from celeriac import Celeriac, Settings
from tests import processes
from tests.processes import Rows, Running

#: Nothing waits longer than a test can; what a test looks at, it fast-forwards itself.
QUICK = {
    "HEARTBEAT_INTERVAL_MS": "300",
    "POLL_INTERVAL_MS": "300",
    "CELERIAC_SWEEP_INTERVAL_MS": "600",
    "CELERIAC_DRAIN_GRACE_MS": "1500",
    "QM_INSTASITES": "true",
    "QM_INSTASITES_INTERVAL_SECONDS": "0.2",
    "INSTASITES_DOMAIN_LOOK_SECONDS": "0.3",
    "QM_SITES_BUILD_THUMBNAILS": "false",
    "QM_SITES_FIX_STALE_THUMBNAILS": "false",
    "DUDA_REQUESTS_PER_SECOND": "1000",
    "DUDA_TIMEOUT_SECONDS": "1",
    "STORES_RETRY_BACKOFF_SECONDS": "0.1",
    "DUTCHIE_REQUESTS_PER_SECOND": "1000",
    "DUTCHIE_TIMEOUT_SECONDS": "1",
}


def silence(rows: Rows) -> None:
    """As if nobody had heard of what runs, nor of its workers, for a day, while beat was there."""
    rows("UPDATE celeriac.beats SET started_at = now() - interval '2 days'")
    rows("UPDATE celeriac.workers SET started_at = now() - interval '2 days'")
    rows("UPDATE celeriac.workers SET last_heartbeat_at = now() - interval '1 day'")
    rows("UPDATE celeriac.worker_tasks SET last_heartbeat_at = now() - interval '1 day' WHERE status = 'running'")


class Stack:
    """`environ` is what a process needs to be part of it; processes started here end with it."""

    def __init__(self, database_url: str, redis_url: str, outside: sandbox.Sandbox, logs: Path) -> None:
        self.outside, self.logs = outside, logs
        self.environ = QUICK | outside.environ() | {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
        self.rows = Rows(database_url)
        self._running = ExitStack()

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()
        self.rows.close()

    def whole_environ(self) -> dict[str, str]:
        """For processes that inherit nothing."""
        return {**os.environ, **self.environ}

    def worker(self, *queues: str, name: str = "", include: str = "", **environ: str) -> Running:
        """`celery -A tasks worker -Q …` with two processes, ready. `include`: a module it imports, too."""
        urls, name = (self.environ["DATABASE_URL"], self.environ["REDIS_URL"]), name or queues[0]
        included = ("--include", include) if include else ()
        arguments = ("-c", "2", "-n", f"{name}@%h", "-Q", ",".join(queues), *included)
        log = self.logs / f"{name}.log"
        return self._running.enter_context(
            processes.worker("tasks", *urls, log, *arguments, environ=self.environ | environ)
        )

    def beat(self, **environ: str) -> Running:
        command = [sys.executable, "-m", "celery", "-A", "tasks", "beat", "-l", "INFO"]
        return self._running.enter_context(processes.process(command, self.environ | environ, self.logs / "beat.log"))


@contextmanager
def on_servers(app: Celeriac, environ: Mapping[str, str]) -> Iterator[Celeriac]:
    """This process's app on the stack's servers, as if it had been started there."""
    _forget_connections(app)
    with mock.patch.dict(os.environ, environ), mock.patch.object(app, "settings", Settings.from_environ(environ)):
        app.conf.broker_url = environ["REDIS_URL"]
        yield app
        _forget_connections(app)


def _forget_connections(app: Celeriac) -> None:
    if "publisher" in app.__dict__:
        app.publisher.close()
    if "database" in app.__dict__:
        app.database.engine.dispose()
    for name in ("database", "publisher", "by_name", "clocks", "limited", "tally"):
        app.__dict__.pop(name, None)
