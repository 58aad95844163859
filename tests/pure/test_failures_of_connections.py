"""A Postgres without a connection left is told from a statement that failed, whatever its values say."""

from __future__ import annotations

import psycopg2
import pytest
from psycopg2.errors import UniqueViolation
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from celeriac.store.failures import is_turned_away


def of_ours(error: DBAPIError) -> DBAPIError:
    error.orig.__dict__["of_celeriac"] = True  # type: ignore[union-attr]
    return error


def test_a_server_that_refuses_connections_is_turned_away() -> None:
    said = psycopg2.OperationalError('connection failed: FATAL:  too many connections for role "worker"')
    assert is_turned_away(of_ours(OperationalError(None, None, said)))


@pytest.mark.parametrize(
    "said",
    [
        'connection to server at "10.0.0.1", port 5432 failed: FATAL:  role "worker" is not permitted to log in',
        'connection to server at "10.0.0.1", port 5432 failed: FATAL:  password authentication failed for user "w"',
        'connection to server at "10.0.0.1", port 5432 failed: FATAL:  no pg_hba.conf entry for host "10.0.0.2"',
        'connection to server at "10.0.0.1", port 6432 failed: Connection refused',
        'connection to server at "10.0.0.1", port 6432 failed: server closed the connection unexpectedly',
        'connection to server at "10.0.0.1", port 5432 failed: SSL error: certificate has expired',
        'could not translate host name "db.example" to address: Temporary failure in name resolution',
        'connection to server at "10.0.0.1", port 5432 failed: could not create socket: Too many open files',
    ],
)
def test_whatever_keeps_a_new_connection_out_is_no_doing_of_the_task_s(said: str) -> None:
    assert is_turned_away(of_ours(OperationalError(None, None, psycopg2.OperationalError(said))))


def test_a_connection_that_breaks_is_another_matter() -> None:
    said = psycopg2.OperationalError("server closed the connection unexpectedly")
    assert not is_turned_away(of_ours(OperationalError(None, None, said)))


def test_a_statement_that_has_such_words_among_its_values_is_not() -> None:
    said = UniqueViolation("duplicate key value: Key (says)=(too many connections) already exists")
    assert not is_turned_away(of_ours(IntegrityError("INSERT", {"says": "too many connections"}, said)))
