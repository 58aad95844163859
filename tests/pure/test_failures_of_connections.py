"""A Postgres without a connection left is told from a statement that failed, whatever its values say."""

from __future__ import annotations

import psycopg2
from psycopg2.errors import UniqueViolation
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from celeriac.store.failures import is_full


def of_ours(error: DBAPIError) -> DBAPIError:
    error.orig.__dict__["of_celeriac"] = True  # type: ignore[union-attr]
    return error


def test_a_server_that_refuses_connections_is_full() -> None:
    said = psycopg2.OperationalError('connection failed: FATAL:  too many connections for role "worker"')
    assert is_full(of_ours(OperationalError(None, None, said)))


def test_a_statement_that_has_such_words_among_its_values_is_not() -> None:
    said = UniqueViolation("duplicate key value: Key (says)=(too many connections) already exists")
    assert not is_full(of_ours(IntegrityError("INSERT", {"says": "too many connections"}, said)))
