"""A Redis without memory takes nothing in, and what plain Celery apps have put there becomes tasks all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery

from celeriac import Celeriac, local
from celeriac.dispatch.keys import adopting_key
from celeriac.worker.adopter import BATCH, Adopter
from tests.processes import Rows


class Killed(BaseException):
    """Ends a look where a `kill -9` would."""


@pytest.fixture
def client(valkey: local.ValkeyServer) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(valkey.url)
    room(client, 0)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def redis_url(valkey: local.ValkeyServer, client: redis.Redis) -> str:
    return valkey.url


@pytest.fixture
def adopter(app: Celeriac) -> Adopter:
    @app.task(role="plus", adopt=True, prompt=False, shared=False)
    def plus(a: int) -> None: ...

    app.register_roles()
    return Adopter(app, lambda: {"plus"})


def room(client: redis.Redis, size: int) -> None:
    client.config_set("maxmemory", size)


def sent(plain: Celery, many: int) -> None:
    for n in range(many):
        plain.send_task("plus", (n,), queue="plus")


def given(rows: Rows) -> list[int]:
    return [a for (a,) in rows("SELECT CAST(kwargs ->> 'a' AS integer) FROM celeriac.tasks ORDER BY id")]


def test_what_lies_in_a_full_redis_is_adopted_in_order(
    adopter: Adopter, plain: Celery, client: redis.Redis, rows: Rows
) -> None:
    many = BATCH + 10
    sent(plain, many)
    room(client, 1)
    assert [adopter.attempt() for _ in range(3)] == [0.0, 0.0, adopter.interval()]
    assert given(rows) == list(range(many))
    assert not client.exists("plus", adopting_key("plus"))


def test_who_is_killed_before_it_removes_them_leaves_nothing_that_becomes_two(
    adopter: Adopter, plain: Celery, client: redis.Redis, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise Killed

    sent(plain, 3)
    room(client, 1)
    with monkeypatch.context() as patch:
        patch.setattr(adopter, "forget", die)
        with pytest.raises(Killed):
            adopter.look()
    assert (client.llen("plus"), given(rows)) == (3, [0, 1, 2])
    adopter.look()
    assert (client.llen("plus"), given(rows)) == (0, [0, 1, 2])
