"""Whether Redis answers is asked of Redis: what refused a ticket, or is slow, or may not be read, is not away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from celeriac import Celeriac, local
from celeriac.alerts.judgement import judge
from celeriac.alerts.rules import Above
from celeriac.cli.status import status
from celeriac.dispatch import asking
from celeriac.dispatch.publish import Probe, Ticket
from celeriac.doctor import machinery
from celeriac.metrics.exporter import Exporter
from celeriac.settings import Settings
from celeriac.store.connections import Database
from tests.end_to_end.trips import Way, way
from tests.processes import until

TICKET = Ticket("work", "work", [1], "11111111-1111-1111-1111-111111111111")

Wrong = Callable[[], list[Above]]


@pytest.fixture
def client(valkey: local.ValkeyServer) -> Iterator[Any]:
    """As its administrator, also while the others may do little."""
    with redis.Redis.from_url(valkey.url) as made:
        client: Any = made
        client.flushall()
        client.acl_setuser("admin", enabled=True, nopass=True, commands=["+@all"], keys=["*"], channels=["*"])
        client.execute_command("AUTH", "admin", "any")
        try:
            yield client
        finally:
            client.config_set("maxmemory", 0)
            client.execute_command("REPLICAOF", "NO", "ONE")
            client.execute_command("ACL", "SETUSER", "default", "reset", "on", "nopass", "~*", "&*", "+@all")
            client.acl_deluser("admin")


@pytest.fixture
def leads(valkey: local.ValkeyServer, client: Any) -> Iterator[Way]:
    with way(host="127.0.0.1", port=valkey.port or 0) as leads:
        yield leads


@pytest.fixture
def redis_url(valkey: local.ValkeyServer, leads: Way) -> str:
    return valkey.url.replace(f":{valkey.port}/", f":{leads.port}/")


@pytest.fixture
def wrong(app: Celeriac, database: Database) -> Wrong:
    """What is wrong with Redis."""

    def read() -> list[Above]:
        with database.reading() as connection:
            return [one for one in judge(connection, app).wrong if one.subject == "Redis"]

    return read


def test_a_full_one_is_full_and_not_away(app: Celeriac, client: Any, wrong: Wrong) -> None:
    assert wrong() == []
    client.config_set("maxmemory", 1)
    assert not app.publisher.publish([TICKET])
    assert not app.publisher.is_open
    assert [one.name for one in wrong()] == ["redis_full"]
    assert b"\nceleriac_redis_refuses 0.0" in Exporter(app).text()
    assert not machinery.redis(app).troubles
    assert app.publisher.queued("work", [TICKET.token]) == set()
    assert Probe(app.publisher, 60.0).length("work") == 0


def test_one_that_failed_a_moment_ago_is_not_away(app: Celeriac, client: Any, wrong: Wrong) -> None:
    client.execute_command("REPLICAOF", "127.0.0.1", "1")
    assert not app.publisher.publish([TICKET])
    client.execute_command("REPLICAOF", "NO", "ONE")
    assert not app.publisher.is_open
    assert wrong() == []


def replica(client: Any) -> None:
    client.execute_command("REPLICAOF", "127.0.0.1", "1")


def alone(client: Any) -> None:
    client.config_set("min-replicas-to-write", 1)


def forbidden(client: Any) -> None:
    client.execute_command("ACL", "SETUSER", "default", "-set")


def unsaved(client: Any) -> None:
    """A folder has the name of the file it saves to."""
    client.config_set("save", "3600 1")
    saved_to(client).unlink(missing_ok=True)
    saved_to(client).mkdir()
    client.bgsave()
    until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "it could not save")


def saved_to(client: Any) -> Path:
    return Path(client.config_get("dir")["dir"], client.config_get("dbfilename")["dbfilename"])


@pytest.fixture
def refusing(client: Any) -> Iterator[Any]:
    saves = client.config_get("save")["save"]
    yield client
    client.config_set("min-replicas-to-write", 0)
    client.config_set("save", saves)
    if saved_to(client).is_dir():
        saved_to(client).rmdir()
        client.bgsave()
        until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "ok", "it could save")


@pytest.mark.parametrize(
    ("refuse", "error", "cure"),
    [
        (replica, "You can't write against a read only replica", "REDIS_URL names a replica"),
        (alone, "NOREPLICAS", "start its replicas"),
        (forbidden, "", "its ACL allows this login too little"),
        (unsaved, "MISCONF", "it cannot save to its disk"),
    ],
)
def test_one_that_refuses_is_told_of_with_its_error_and_what_cures_that(
    app: Celeriac, refusing: Any, wrong: Wrong, refuse: Callable[[Any], None], error: str, cure: str
) -> None:
    assert b"\nceleriac_redis_refuses 0.0" in Exporter(app).text()
    refuse(refusing)
    (one,) = wrong()
    assert one.name == "redis_away"
    assert one.says.startswith(f"answers, and refuses wake-ups: {error}")
    assert one.cure.startswith(cure)
    assert app.publisher.answers()
    told = Exporter(app).text()
    assert b"\nceleriac_redis_up 1.0" in told
    assert b"\nceleriac_redis_refuses 1.0" in told


@pytest.mark.parametrize("command", ["info", "slowlog"])
def test_what_may_not_be_asked_is_not_known_and_closes_nothing(
    app: Celeriac, client: Any, wrong: Wrong, command: str
) -> None:
    client.execute_command("ACL", "SETUSER", "default", f"-{command}")
    assert wrong() == []
    assert app.publisher.ask(lambda redis: redis.execute_command(command)) is None
    assert app.publisher.is_open
    seen = machinery.redis(app)
    assert not seen.troubles
    if command == "info":
        assert seen.text == "answers; its policy may not be read"


def test_one_that_does_not_answer_is_away_and_keeps_nobody_for_long(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(database_url=database_url, redis_url="redis://127.0.0.1:9/0")
    app = Celeriac("away", settings=settings, set_as_current=False)
    with database.reading() as connection:
        (one,) = [one for one in judge(connection, app).wrong if one.subject == "Redis"]
    assert (one.name, "work goes on" in one.says) == ("redis_away", True)
    assert "work goes on" in machinery.redis(app).troubles[0].text
    asked: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(asking, "REST", 60.0)
        patch.setattr(app.publisher.questions, "_rests_until", 0.0)
        for _ in range(3):
            assert not app.publisher.questions.ask(asked.append).is_there
    assert asked == []
    app.close()


def test_one_that_has_always_been_slow_is_slow(app: Celeriac, leads: Way, wrong: Wrong) -> None:
    """To connect takes no time here, so the way is not what takes it."""
    leads.late = 0.07
    for _ in range(3):
        assert [one.name for one in wrong()] == ["slow_redis"]
        assert app.publisher.questions.answer_time().least < asking.SLOW_ANSWER
    leads.late = 0.0
    assert wrong() == []


def test_a_far_one_is_slow_once_it_takes_longer_than_the_way(
    app: Celeriac, leads: Way, wrong: Wrong, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was near and has moved is not slow either: a failover to another zone is none."""
    assert wrong() == []
    monkeypatch.setattr(asking, "_connecting", lambda _: 0.14)
    leads.late = 0.07
    assert wrong() == []
    leads.late = 0.15
    assert [one.name for one in wrong()] == ["slow_redis"]
    leads.late = 0.07
    assert wrong() == []


@pytest.mark.parametrize("forgets", ["in time", "as it connects anew"])
def test_where_nobody_knows_the_time_to_connect_the_least_answer_is_forgotten(
    app: Celeriac, leads: Way, wrong: Wrong, monkeypatch: pytest.MonkeyPatch, forgets: str
) -> None:
    monkeypatch.setattr(asking, "_connecting", lambda _: None)
    assert wrong() == []
    leads.late = 0.03
    assert wrong() == []
    if forgets == "in time":
        monkeypatch.setattr(app.publisher.questions, "_least_until", 0.0)
    else:
        app.publisher.questions.close()
    assert wrong() == []
    leads.late = 0.07
    assert wrong() == []


def test_one_that_stays_slow_is_not_taken_for_far_away_in_time(
    app: Celeriac, leads: Way, wrong: Wrong, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_connecting", lambda _: None)
    assert wrong() == []
    leads.late = 0.07
    for _ in range(2):
        monkeypatch.setattr(app.publisher.questions, "_least_until", 0.0)
        assert [one.name for one in wrong()] == ["slow_redis"]


def test_where_there_is_none_the_status_says_so(database_url: str) -> None:
    settings = Settings(database_url=database_url, redis_url="none")
    app = Celeriac("none", settings=settings, set_as_current=False)
    ran = CliRunner().invoke(status, obj=lambda: app)
    assert "redis     none" in ran.output
    assert "redis     answers" not in ran.output
    app.close()
