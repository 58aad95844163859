"""The configured broker is the one Redis there is, by Sentinels or by itself; another is refused in a line."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from flower.utils.broker import Broker

from celeriac import Celeriac, ConfigurationError
from celeriac.dispatch.publish import SHORT_FUSE
from celeriac.testing.servers import pointed
from tests.pure.configured import REDIS, WAYS, Make
from tests.pure.test_configuration import OTHER


@pytest.mark.parametrize("way", WAYS)
def test_the_configured_broker_is_the_redis_there_is(make: Make, way: Callable[..., Celeriac]) -> None:
    app = way(lambda **given: make(redis_url=None, **given), broker_url=OTHER)
    assert app.redis_url == OTHER
    assert app.connection_for_write().hostname == "elsewhere.invalid"


@pytest.mark.parametrize("way", WAYS)
def test_two_that_disagree_are_an_error_wherever_they_are_said(make: Make, way: Callable[..., Celeriac]) -> None:
    app = way(make, broker_url="redis://:secret@elsewhere.invalid/0")
    with pytest.raises(ConfigurationError, match=r"^REDIS_URL='redis://nowhere.*' and broker_url=.*\*\*@.* disagree"):
        _ = app.redis_url
    with pytest.raises(ConfigurationError, match="disagree"):
        _ = app.enqueuer


def test_one_server_may_be_spelled_in_two_ways(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make("redis://localhost", broker="redis://127.0.0.1:6379/0").redis_url == "redis://localhost"
    monkeypatch.setenv("CELERY_BROKER_URL", OTHER)
    with pytest.raises(ConfigurationError, match=r"^REDIS_URL=.* and CELERY_BROKER_URL=.* disagree"):
        _ = make().redis_url


@pytest.mark.parametrize("wrong", ["amqp://guest@nowhere.invalid//", "memory://", f"{REDIS};{OTHER}", [REDIS, OTHER]])
def test_another_broker_than_one_redis_is_refused_in_a_line(make: Make, wrong: Any) -> None:
    app = make(redis_url=None, broker=wrong)
    with pytest.raises(ConfigurationError, match=r"^broker_url=.*: the broker is one Redis or Valkey; give one of"):
        _ = app.redis_url


SENTINELS = "sentinel://:secret@one.invalid:26379/2;sentinel://two.invalid"


def test_sentinels_are_named_as_celery_names_them_with_their_master(make: Make) -> None:
    app = make(redis_url=None, broker=SENTINELS, broker_transport_options={"master_name": "tickets"})
    assert app.redis_url == SENTINELS
    connection = app.connection_for_write()
    assert connection.transport_cls == "sentinel"
    assert connection.transport_options["master_name"] == "tickets"
    assert app.connection_for_read(transport_options={"socket_connect_timeout": 0.5}).transport_options[
        "sentinel_kwargs"
    ] == {"socket_timeout": 0.5, "socket_connect_timeout": 0.5}
    connection.switch(connection.alt[1])
    assert (connection.hostname, connection.password, connection.virtual_host) == ("two.invalid", "secret", "2")


def test_flower_finds_the_masters_name_where_it_looks(make: Make) -> None:
    app = make(SENTINELS, redis_master="tickets")
    broker = Broker(SENTINELS.partition(";")[0], broker_options=app.conf.broker_transport_options)
    assert broker.master_name == "tickets"
    assert app.notes() == []


def test_a_sentinels_own_options_are_kept_but_for_what_is_in_haste(make: Make) -> None:
    theirs = {"password": "theirs", "socket_timeout": 9}
    app = make(SENTINELS, broker_transport_options={"master_name": "tickets", "sentinel_kwargs": theirs})
    patient, hasty = (app.connection_for_write(transport_options=given) for given in (None, SHORT_FUSE))
    assert patient.transport_options["sentinel_kwargs"] == theirs | {"socket_connect_timeout": 5}
    assert hasty.transport_options["sentinel_kwargs"] == {
        "password": "theirs", "socket_timeout": 0.5, "socket_connect_timeout": 0.5,
    }  # fmt: skip
    endless = {"master_name": "tickets", "socket_connect_timeout": None}
    assert make(SENTINELS, broker_transport_options=endless).connection_for_write().transport_options["sentinel_kwargs"]


@pytest.mark.parametrize(
    "said", ["sentinel://:secret@a/1;sentinel://b", "sentinel://a;sentinel://:secret@b/1;", "sentinel://:secret@a/1"]
)
def test_any_sentinel_may_say_how_their_redis_lets_one_in(make: Make, said: str) -> None:
    connection = make(said, redis_master="tickets").connection_for_write()
    assert (connection.password, connection.virtual_host, connection.port) == ("secret", "1", 26379)


@pytest.mark.parametrize(
    ("url", "master", "options", "blamed"),
    [
        (SENTINELS, None, {}, r"^The broker is named by its Sentinels: say which master .* CELERIAC_REDIS_MASTER"),
        (SENTINELS, "a", {"master_name": "b"}, r"^CELERIAC_REDIS_MASTER='a' and .*'b' disagree"),
        (REDIS, "a", {}, r"^CELERIAC_REDIS_MASTER='a' is a name among Sentinels"),
        (
            "sentinel://a/0;sentinel://b/1",
            "a",
            {},
            r"^'sentinel://a/0;sentinel://b/1': user, password and number .*differ",
        ),
        ("sentinel://:x@a;sentinel://:y@b", "a", {}, r"^'sentinel://\*\*@a.* and differ$"),
        ("sentinel://a;redis://:x@b", "a", {}, r"^REDIS_URL: with Sentinels each address is one"),
        ("sentinel://a;user:x@b", "a", {}, r"^REDIS_URL cannot be read: give redis://.*%3B"),
        ("sentinel://a:no", "a", {}, r"^REDIS_URL cannot be read: give redis://.*%3B"),
    ],
)
def test_sentinels_that_cannot_be_asked_are_refused_in_a_line(
    make: Make, url: str, master: str | None, options: dict[str, str], blamed: str
) -> None:
    app = make(url, redis_master=master, broker_transport_options=options)
    with pytest.raises(ConfigurationError, match=blamed):
        _ = app.redis_url


def test_an_error_about_sentinels_tells_no_password(make: Make) -> None:
    with pytest.raises(ConfigurationError, match="disagree") as refused:
        _ = make(SENTINELS, redis_master="a", broker="sentinel://x:hidden@three.invalid").redis_url
    assert "secret" not in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_what_workers_tell_of_their_connection_has_no_password_of_a_sentinel(make: Make) -> None:
    options = {"master_name": "tickets", "sentinel_kwargs": {"password": "theirs"}}
    told = make(SENTINELS, broker_transport_options=options).connection_for_read().info()
    assert "theirs" not in str(told)
    assert told["transport_options"]["master_name"] == "tickets"


def test_in_tests_the_environments_sentinels_are_forgotten(make: Make) -> None:
    app = make(SENTINELS, redis_master="tickets")
    with pointed(app, "postgresql://nowhere.invalid/", REDIS):
        assert app.redis_url == REDIS


def test_without_any_the_connection_is_to_the_embedded_one(make: Make) -> None:
    app = make(redis_url=None)
    app.__dict__["stack"] = SimpleNamespace(redis_url="redis://embedded.invalid/0")
    assert app.connection_for_read().hostname == "embedded.invalid"
