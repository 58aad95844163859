"""Servers, workers and beats of `waiting`, each a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

from celeriac import Settings
from tests import processes
from tests.api.server import UNLIMITED, Api, free_port, is_ready
from tests.dashboard import waiting
from tests.end_to_end.conftest import QUICK
from tests.processes import ROOT, Rows, Running, process, until

#: Milliseconds a page may take to show what a worker did: a look, two polls and a busy machine.
SOON = 60_000


class Stack:
    """Servers and workers of a module's app, on a database of their own; they end with the test."""

    def __init__(self, database_url: str, redis_url: str, folder: Path, module: ModuleType = waiting) -> None:
        self.database_url, self.redis_url, self.folder = database_url, redis_url, folder
        self.module, self.app = module.__name__, module.app
        for name in ("database", "publisher", "enqueuer", "by_name", "limited", "tally"):
            self.app.__dict__.pop(name, None)
        self.app.settings = Settings.from_environ({**QUICK, "DATABASE_URL": database_url, "REDIS_URL": redis_url})
        self.app.conf.broker_url = redis_url
        self.app.register_roles()
        self.rows = Rows(database_url)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.ends = ExitStack()
        self.ends.callback(self.app.database.dispose)
        self.ends.callback(self.app.publisher.close)
        self.ends.callback(self.rows.close)
        self.api = Api(self.url, database_url)
        self.ends.callback(self.api.close)

    def serve(self, **environ: str) -> Running:
        """`celeriac serve`, always at the same address."""
        servers = {"DATABASE_URL": self.database_url, "REDIS_URL": self.redis_url, "PYTHONPATH": str(ROOT)}
        given = {**servers, **UNLIMITED, **environ}
        main = "from celeriac.cli import main; main()"
        command = [sys.executable, "-c", main, "-A", self.module, "serve", "--port", str(self.port)]
        running = self.ends.enter_context(process(command, given, self.folder / "server"))
        until(lambda: running.process.poll() is not None or is_ready(self.api), "the server to be ready")
        return running

    def worker(self, *queues: str, options: tuple[str, ...] = (), **environ: str) -> Running:
        log = self.folder / f"worker {' '.join(queues)}"
        arguments = ("-c", "1", "-Q", ",".join(queues), "-n", f"{queues[0]}@%h", *options)
        return self.ends.enter_context(
            processes.worker(self.module, self.database_url, self.redis_url, log, *arguments, environ=QUICK | environ)
        )

    def beat(self, name: str = "beat", **environ: str) -> Running:
        log = self.folder / name
        return self.ends.enter_context(
            processes.beat(self.module, self.database_url, self.redis_url, log, environ=QUICK | environ)
        )

    def do(self, act: Callable[..., Any], *given: Any, **more: Any) -> None:
        with self.app.database.transaction() as connection:
            act(connection, *given, **more, by="ann")

    def status(self, task: int) -> object:
        return self.rows.one("SELECT status FROM worker_tasks WHERE id = :id", id=task)
