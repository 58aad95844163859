"""A database with limits says them in whatever way it is used; nobody else's statements have them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from celeriac.store.connections import Database

SAID = "SELECT current_setting('lock_timeout') || ' ' || current_setting('statement_timeout')"


@pytest.fixture
def limited(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    database.limit(lock=2, statement=5)
    yield database
    database.dispose()


@pytest.mark.parametrize("way", ["statement", "transaction", "reading"])
def test_every_statement_has_its_limits(limited: Database, way: str) -> None:
    connected: AbstractContextManager[Connection] = getattr(limited, way)()
    with connected as connection:
        assert connection.exec_driver_sql(SAID).scalar_one() == "2s 5s"


def test_so_has_a_handlers_session(limited: Database) -> None:
    with Session(limited.engine) as session:
        assert session.connection().exec_driver_sql(SAID).scalar_one() == "2s 5s"


def test_a_shorter_patience_goes_before(limited: Database) -> None:
    with limited.transaction(patience=0.5) as connection:
        assert connection.exec_driver_sql(SAID).scalar_one() == "500ms 5s"


def test_of_a_limit_nothing_is_left_on_a_connection(limited: Database) -> None:
    limited.limit(lock=1, statement=3)
    with limited.statement() as connection:
        assert connection.exec_driver_sql(SAID).scalar_one() == "1s 3s"
    with limited._verbs.connect() as connection:
        assert connection.exec_driver_sql(SAID).scalar_one() == "2s 0"
