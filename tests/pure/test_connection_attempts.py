"""A Postgres that lets nobody in is tried seldom, by one of a process' threads, and at once where it serves."""

from __future__ import annotations

import gc

import psycopg2
import pytest
from sqlalchemy.exc import OperationalError

from celeriac.store import attempts
from celeriac.store.attempts import FIRST, LONGEST, Attempts
from celeriac.store.connections import Database

#: Seconds between two looks of a thread, and for how long each looks.
EVERY, LONG = 0.05, 60.0


class Server:
    def __init__(self) -> None:
        self.now, self.tried, self.serves = 0.0, 0, False

    def connect(self, made: Attempts) -> str:
        made.begin()
        self.tried += 1
        if not self.serves:
            raise psycopg2.OperationalError('connection to server at "x" failed: Connection refused')
        made.succeeded()
        return "connection"


def ask(server: Server, made: Attempts) -> str | None:
    try:
        return server.connect(made)
    except psycopg2.OperationalError as error:
        made.failed(error)
        return None if "Connection refused" in str(error) else str(error)


def test_whoever_asks_a_server_that_is_away_is_tried_once_a_second_at_most() -> None:
    server = Server()
    made = Attempts(lambda: server.now)
    while server.now < LONG:
        assert [ask(server, made) for _ in range(9)] == [None] * 9
        server.now += EVERY
    assert LONG / (LONGEST + EVERY) <= server.tried <= LONG / (LONGEST / 2) + LONGEST / FIRST


def test_once_it_serves_it_is_noticed_after_the_longest_rest_and_no_rest_is_left() -> None:
    server = Server()
    made = Attempts(lambda: server.now)
    for _ in range(20):
        ask(server, made)
        server.now += LONGEST
    server.serves, server.tried = True, 0
    server.now += LONGEST
    assert [ask(server, made) for _ in range(3)] == ["connection"] * 3
    server.serves = False
    assert ask(server, made) is None
    server.now += FIRST
    assert [ask(server, made), server.tried] == [None, 5]


def test_while_one_tries_the_others_hear_what_was_last() -> None:
    server = Server()
    made = Attempts(lambda: server.now)
    ask(server, made)
    server.now += FIRST

    made.begin()
    with pytest.raises(psycopg2.OperationalError, match="Connection refused"):
        made.begin()
    made.succeeded()
    made.begin()


def test_all_databases_of_a_process_share_the_attempts_at_a_server() -> None:
    first, second = Database("postgresql://nobody@/none"), Database("postgresql://nobody@/none")
    assert first._attempts is second._attempts
    assert first._attempts is not attempts.at("postgresql://nobody@/other")
    del first, second
    gc.collect()
    assert "postgresql://nobody@/none" not in attempts._by_address


@pytest.mark.parametrize("way", ["engine", "statement", "cursor"])
def test_in_whatever_way_a_connection_is_needed_the_last_refusal_is_told_again(way: str) -> None:
    database = Database(f"postgresql://nobody@127.0.0.1:1/{way}")
    needs = {"engine": database.engine.connect, "statement": database.statement, "cursor": database.cursor}[way]
    for _ in range(3):
        with pytest.raises(OperationalError, match="Connection refused"), needs():
            pass
    assert database._attempts._failure is not None
    assert database._attempts._failure.rest == FIRST
