"""What a kick puts into Redis: a ticket for a lone row where nothing else queues, else one ask for a pass."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import redis

from celeriac import Celeriac
from celeriac.dispatch.keys import ticket_key
from celeriac.seam.envelope import check_ticket

PREFIX = "ours:"


@pytest.fixture(params=["", PREFIX], ids=["plain", "with a prefix"])
def key(request: pytest.FixtureRequest, app: Celeriac) -> str:
    """Where the tickets of `work` lie."""
    app.conf.broker_transport_options = {"global_keyprefix": request.param} if request.param else {}

    @app.task(role="work", shared=False)
    def work() -> None: ...

    return str(request.param) + ticket_key("work")


@pytest.fixture
def client(redis_url: str) -> redis.Redis:
    return redis.Redis.from_url(redis_url)


def asked(client: redis.Redis, key: str) -> list[tuple[str, list[int], str]]:
    """What each ticket says, the oldest first; a worker takes each for one."""
    tickets: list[Any] = []
    for raw in reversed(client.lrange(key, 0, -1)):
        check_ticket(raw)
        tickets.append(tuple(json.loads(base64.b64decode(json.loads(raw)["body"]))[0]))
    return tickets


def test_a_lone_row_gets_a_ticket_where_nothing_else_queues(app: Celeriac, client: redis.Redis, key: str) -> None:
    assert app.publisher.kick("work", "work", lone=7)
    assert asked(client, key) == [("work", [7], "")]


def test_behind_others_it_is_one_ask_for_a_pass(app: Celeriac, client: redis.Redis, key: str) -> None:
    for row in (7, 8, 9):
        assert app.publisher.kick("work", "work", lone=row)
    assert asked(client, key) == [("work", [7], ""), ("work", [], "")]


def test_a_redis_that_has_forgotten_the_script_learns_it_again(app: Celeriac, client: redis.Redis, key: str) -> None:
    app.publisher.kick("work", "work", lone=7)
    client.script_flush()
    client.delete(key)
    assert app.publisher.kick("work", "work", lone=8)
    assert asked(client, key) == [("work", [8], "")]
