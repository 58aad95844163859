"""What plain Celery apps send becomes tasks or dead letters, each once, whoever is killed in between."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import redis
from celery import Celery
from sqlalchemy.exc import OperationalError

from celeriac import Celeriac, Settings
from celeriac.dispatch.keys import adopting_key
from celeriac.enqueue import adopted, outbox
from celeriac.enqueue.adopted import Letter
from celeriac.worker.adopter import BATCH, Adopter
from tests.postgres.adopting.conftest import Adopters, left, tasks
from tests.processes import Rows

ADOPTING = adopting_key("plus")


def test_a_message_on_the_roles_queue_or_the_default_queue_is_a_task(
    adopters: Adopters, plain: Celery, client: redis.Redis, rows: Rows
) -> None:
    plain.send_task("plus", (1,), task_id="first", queue="plus")
    plain.send_task("plus", (2,), task_id="second")
    assert adopters("plus").look() is True
    assert sorted(tasks(rows)) == [("first", "plus", {"a": 1}), ("second", "plus", {"a": 2})]
    assert left(client) == []
    assert rows("SELECT FROM celeriac.ready") == [(), ()]


def test_all_of_celerys_priorities_are_taken_the_most_urgent_first(
    adopters: Adopters, plain: Celery, client: redis.Redis, rows: Rows
) -> None:
    for n in (9, 6, 3, 0):
        plain.send_task("plus", (n,), queue="plus", priority=n)
    client.rename("plus\x06\x169", "plus\x06\x167")  # of a sender with steps of its own
    adopters("plus").look()
    assert rows("SELECT kwargs, priority FROM celeriac.tasks ORDER BY priority DESC") == [
        ({"a": n}, -n) for n in (0, 3, 6, 9)
    ]
    assert left(client) == []


def test_a_backlog_is_taken_in_batches_and_in_order(
    adopters: Adopters, plain: Celery, client: redis.Redis, rows: Rows
) -> None:
    many = 2 * BATCH + 10
    for n in range(many):
        plain.send_task("plus", (n,), queue="plus")
    adopter = adopters("plus")
    assert [adopter.look() for _ in range(4)] == [True, True, True, False]
    assert [task[2]["a"] for task in tasks(rows)] == list(range(many))
    assert left(client) == []


def test_a_message_that_comes_again_is_the_same_task_even_when_that_is_gone(
    adopters: Adopters, plain: Celery, client: redis.Redis, rows: Rows
) -> None:
    """The role keeps no successes: only the ledger knows the id then."""
    plain.send_task("plus", (1,), task_id="mine", queue="plus")
    (message,) = client.lrange("plus", 0, -1)
    adopters("plus").look()
    client.lpush("plus", message, message)
    adopters("plus").look()
    assert len(tasks(rows)) == 1
    rows("SELECT celeriac.leave(array_agg(id)) FROM celeriac.tasks")
    rows("DELETE FROM celeriac.tasks")
    client.lpush(ADOPTING, message)
    adopters("plus").look()
    assert (tasks(rows), left(client)) == ([], [])


def test_a_batch_of_large_messages_is_a_small_one(
    adopters: Adopters, client: redis.Redis, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing says how large a message is, so the first few may be more than the bound."""
    monkeypatch.setattr("celeriac.worker.adopter.BATCH_BYTES", 2500)
    for n in range(6):
        client.lpush("plus", str(n).encode() * 1000)
    client.lpush("celery", b"hello")
    adopter = adopters("plus")
    assert adopter.look() is True
    assert len(rows("SELECT FROM dead_letters")) == 3
    assert (client.llen("plus"), client.llen("celery")) == (4, 0)
    while adopter.look():
        pass
    assert len(rows("SELECT FROM dead_letters")) == 7
    assert left(client) == []


class Killed(BaseException):
    """Ends a look where a `kill -9` would."""


@pytest.mark.parametrize("where", ["adopt", "forget"])
def test_who_is_killed_on_the_way_leaves_the_messages_to_the_next_one(
    adopters: Adopters, plain: Celery, client: redis.Redis, rows: Rows, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise Killed

    plain.send_task("plus", (1,), queue="plus")
    plain.send_task("no.such", queue="plus")
    killed = adopters("plus")
    monkeypatch.setattr(killed, where, die)
    with pytest.raises(Killed):
        killed.look()
    assert left(client) == [ADOPTING]
    assert len(tasks(rows)) == (0 if where == "adopt" else 1)
    adopters("plus").look()
    assert len(tasks(rows)) == 1
    assert rows("SELECT name FROM dead_letters") == [("no.such",)]
    assert left(client) == []


def test_while_one_adopts_another_leaves_it_alone(
    adopters: Adopters, plain: Celery, app: Celeriac, client: redis.Redis, rows: Rows
) -> None:
    plain.send_task("plus", (1,), queue="plus")
    with app.database.transaction() as connection:
        assert adopted.has_turn(connection)
        assert adopters("plus").look() is False
        assert left(client) == [ADOPTING]
    adopters("plus").look()
    assert len(tasks(rows)) == 1


def test_what_becomes_no_task_is_a_dead_letter_with_its_reason(
    adopters: Adopters, plain: Celery, client: redis.Redis, rows: Rows
) -> None:
    plain.send_task("shy", (1,), task_id="shy-1", queue="plus")
    plain.send_task("plus", (1,), {"colour": 1}, queue="plus")
    client.lpush("plus", b"hello", b"hello")
    adopters("plus").look()
    found = rows("SELECT name, task_id, args, kwargs, reason, size FROM dead_letters ORDER BY coalesce(name, 'q')")
    assert [name for name, *_ in found] == ["plus", None, "shy"]
    assert found[0][2:4] == ([1], {"colour": 1})
    assert "unexpected keyword argument 'colour'" in found[0][4]
    assert found[1][4:] == ("it is no JSON: Expecting value: line 1 column 1 (char 0)", 5)
    assert found[2][1] == "shy-1"
    assert "adopt=True is not declared" in found[2][4]
    assert (tasks(rows), left(client)) == ([], [])


def test_a_role_that_another_code_base_declares_is_adopted_if_it_says_so(
    adopters: Adopters, plain: Celery, database_url: str, redis_url: str, rows: Rows
) -> None:
    adopters()
    other = Celeriac("x", settings=Settings(database_url=database_url, redis_url=redis_url), set_as_current=False)
    plain.send_task("plus", (1,), queue="mine")
    plain.send_task("shy", queue="mine")
    Adopter(other, lambda: {"mine"}).look()
    assert rows("SELECT role FROM celeriac.tasks") == [("plus",)]
    assert rows("SELECT name FROM dead_letters") == [("shy",)]
    other.publisher.close()
    other.database.dispose()


def test_a_unique_key_gives_one_task_and_nobodys_transaction_is_waited_for(
    adopters: Adopters, plain: Celery, app: Celeriac, client: redis.Redis, rows: Rows
) -> None:
    plain.send_task("one", (1,), queue="one")
    plain.send_task("one", (1,), queue="one")
    plain.send_task("one", (2,), queue="one")
    with app.database.engine.begin() as connection:
        app.tasks["one"].using(connection=connection).delay(2)
        adopters("one").look()
    assert left(client) == []
    outbox.Admission(app.database).look()
    assert sorted(n["n"] for (n,) in rows("SELECT kwargs FROM celeriac.tasks")) == [1, 2]


def test_an_id_that_somebodys_transaction_has_holds_up_no_other_message(
    adopters: Adopters, plain: Celery, app: Celeriac, client: redis.Redis, rows: Rows
) -> None:
    plain.send_task("plus", (1,), task_id="theirs", queue="plus")
    plain.send_task("plus", (2,), task_id="free", queue="plus")
    with app.database.engine.begin() as connection:
        app.tasks["plus"].apply_async((7,), task_id="theirs", connection=connection)
        adopters("plus").look()
        outbox.Admission(app.database).look()
        assert [task[0] for task in tasks(rows)] == ["free"]
        assert left(client) == []
    outbox.Admission(app.database).look()
    assert sorted(tasks(rows)) == [("free", "plus", {"a": 2}), ("theirs", "plus", {"a": 7})]


def test_a_message_that_somebody_is_replaying_waits_in_redis_and_no_other_does(
    adopters: Adopters, plain: Celery, app: Celeriac, client: redis.Redis, rows: Rows
) -> None:
    plain.send_task("plus", (1,), task_id="theirs", queue="plus")
    plain.send_task("plus", (2,), task_id="free", queue="plus")
    with app.database.engine.connect() as connection:
        connection.exec_driver_sql("INSERT INTO celeriac.adopted (task_id) VALUES ('theirs')")
        adopters("plus").look()
        assert [task[0] for task in tasks(rows)] == ["free"]
        assert client.llen(ADOPTING) == 1
        connection.rollback()
    adopters("plus").look()
    assert sorted(tasks(rows)) == [("free", "plus", {"a": 2}), ("theirs", "plus", {"a": 1})]
    assert left(client) == []


def test_what_postgres_refuses_is_a_dead_letter_and_takes_no_other_with_it(
    adopters: Adopters, plain: Celery, rows: Rows
) -> None:
    rows("ALTER TABLE celeriac.tasks ADD CONSTRAINT no_seven CHECK (kwargs <> '{\"a\": 7}')")
    for n in (6, 7, 8):
        plain.send_task("plus", (n,), queue="plus")
    adopters("plus").look()
    assert [task[2]["a"] for task in tasks(rows)] == [6, 8]
    ((reason,),) = rows("SELECT reason FROM dead_letters")
    assert "Postgres refused it" in reason
    assert "no_seven" in reason


def test_a_redis_and_a_postgres_that_are_away_are_waited_for(
    adopters: Adopters, plain: Celery, app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.send_task("plus", (1,), queue="plus")
    adopter = adopters("plus")
    with monkeypatch.context() as away:
        away.setattr(app.conf, "broker_url", "redis://127.0.0.1:1/0")
        assert adopter.attempt() > 0
    with monkeypatch.context() as away:
        away.setattr(adopted, "has_turn", lambda _: (_ for _ in ()).throw(OperationalError("", {}, Exception("gone"))))
        assert adopter.attempt() > 0
    assert tasks(rows) == []
    assert [adopter.attempt() for _ in range(2)] == [0.0, app.settings.adopt_interval]
    assert len(tasks(rows)) == 1


def test_its_thread_ends_with_its_worker(app: Celeriac) -> None:
    ending = threading.Event()
    adopter = Adopter(app, lambda: {"plus"}, ending)
    adopter.start()
    assert adopter.is_alive()
    ending.set()
    adopter.join(30)
    assert not adopter.is_alive()


def test_what_a_letter_shows_is_bounded_and_the_message_is_whole(app: Celeriac, rows: Rows) -> None:
    message = json.dumps(["x" * 100_000]).encode()
    with app.database.transaction() as connection:
        adopted.bury(connection, [Letter(message, "why\x00", args=["x"])] * 2)
    assert rows("SELECT message = :m, reason, args FROM dead_letters", m=message) == [(True, "why", ["x"])]
