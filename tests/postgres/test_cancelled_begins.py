"""A transaction whose beginning is cut short leaves its connection as it was: the next one begins."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from celeriac.store import connections
from celeriac.store.connections import Database

Opened = Callable[[], AbstractContextManager[Connection]]

#: What a server or an operator does to a statement that has begun the transaction already.
CUT_SHORT = "; SELECT pg_cancel_backend(pg_backend_pid()) FROM pg_sleep(0.01)"


@pytest.mark.parametrize("kind", ["reading", "transaction"])
def test_a_beginning_that_is_cancelled_leaves_no_open_transaction(
    database: Database, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    opened: Opened = getattr(database, kind)
    end_silent = connections.end_silent
    with monkeypatch.context() as patched:
        patched.setattr(connections, "end_silent", lambda: f"{end_silent()}{CUT_SHORT}")
        with pytest.raises(DBAPIError, match="canceling statement"), opened() as connection:
            connection.execute(text("SELECT 1"))  # it takes the beginning with it
    with database.statement() as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1
    with opened() as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1
