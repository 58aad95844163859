"""A ticket that is run in this process, and a Postgres that is not to be had for a while."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from sqlalchemy import make_url

from celeriac import Celeriac
from celeriac.run.arrive import run_ticket
from celeriac.store.connections import Database
from tests.conftest import Servers
from tests.postgres.stages import claimed

Away = Callable[[], AbstractContextManager[None]]

STATUS = "SELECT status FROM worker_tasks ORDER BY id"
TICKET = "SELECT FROM celeriac.tickets FOR NO KEY UPDATE"


@pytest.fixture
def away(servers: Servers, database_url: str) -> Away:
    """`with away():` the database is not to be had."""
    name = make_url(database_url).database

    @contextmanager
    def gone() -> Iterator[None]:
        servers.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        servers.execute(f"SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE datname = '{name}'")
        try:
            yield
        finally:
            servers.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

    return gone


@pytest.fixture
def run(app: Celeriac, database: Database) -> Callable[[int], dict[str, Any]]:
    """Runs a ticket of so many tasks of the role `work` in this process."""

    return lambda n: run_ticket(app, "work", *claimed(database, n=n))


Run = Callable[[int], dict[str, Any]]


class Exited(BaseException):
    """In place of the end of this process."""


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(status: int) -> None:
        raise Exited(status)

    monkeypatch.setattr(os, "_exit", leave)
