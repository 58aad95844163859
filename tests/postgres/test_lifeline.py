"""The lifeline's looks: what it does while Postgres is away, and what wakes it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac
from celeriac.run import shared
from celeriac.store.connections import Database
from celeriac.worker import lifeline as module
from celeriac.worker.lifeline import Lifeline


@pytest.fixture
def lifeline(app: Celeriac) -> Iterator[Lifeline]:
    lifeline = Lifeline(app, SimpleNamespace(pool=None, concurrency=1))
    yield lifeline
    lifeline.database.dispose()


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The processes that were killed, had they not been this one."""
    killed: list[int] = []
    monkeypatch.setattr(module, "_kill", killed.append)
    yield killed
    shared.limit(0, 0.0)


@pytest.mark.parametrize("ended", [False, True])
def test_what_is_past_its_limit_is_stopped_also_while_postgres_is_away(
    lifeline: Lifeline, killed: list[int], monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    away = Database("postgresql://nobody@127.0.0.1:1/none")
    real = away.transaction

    def transaction() -> Any:
        if ended:
            shared.limit(0, 0.0)
        return real()

    monkeypatch.setattr(lifeline, "database", away)
    monkeypatch.setattr(away, "transaction", transaction)
    shared.limit(4711, time.monotonic())
    with pytest.raises(DBAPIError):
        lifeline.look()
    assert killed == ([] if ended else [os.getpid()])
