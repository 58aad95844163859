"""Which keys of a Redis are an app's own plain queues, and which are never looked at."""

from __future__ import annotations

from collections.abc import Callable

import redis
from celery import Celery

from celeriac import Celeriac, Settings
from celeriac.dispatch.keys import adopting_key, ticket_key
from celeriac.worker.adopter import SELDOM, Adopter
from tests.postgres.adopting.conftest import Adopters, left, tasks
from tests.postgres.adopting.test_adopter import ADOPTING
from tests.processes import Rows


def test_without_a_role_that_adopts_the_default_queue_is_left_alone(
    app: Celeriac, plain: Celery, client: redis.Redis, rows: Rows
) -> None:
    """It may be a stock app's own, also where a worker consumes its tickets; a role's queue is for nobody else."""

    @app.task(role="plus", prompt=False, shared=False)
    def plus(a: int) -> None: ...

    app.register_roles()
    plain.send_task("plus", (1,))
    plain.send_task("plus", (1,), queue="plus")
    adopter = Adopter(app, lambda: set(app.amqp.queues.consume_from))
    assert "celery" in adopter.queues()
    adopter.look()
    assert left(client) == ["celery"]
    assert rows("SELECT name FROM dead_letters") == [("plus",)]
    assert adopter.interval() == SELDOM


def test_adopting_for_the_whole_app_is_each_role_that_does_not_say_otherwise(database_url: str, redis_url: str) -> None:
    settings = Settings(database_url=database_url, redis_url=redis_url)
    app = Celeriac("x", settings=settings, set_as_current=False, adopt=True)

    def nothing() -> None: ...

    app.task(role="usual", shared=False)(nothing)
    app.task(role="shy", shared=False, adopt=False)(nothing)
    assert {name: app.roles.get(name).role.adopt for name in ("shy", "usual")} == {"shy": False, "usual": True}
    assert Adopter(app, set).interval() == settings.adopt_interval


def test_where_it_is_switched_off_the_plain_queues_stay_as_they_are(
    adopters: Adopters, plain: Celery, app: Celeriac, client: redis.Redis, rows: Rows
) -> None:
    """What was taken before is adopted all the same."""
    app.settings = Settings(database_url=app.settings.database_url, redis_url=app.settings.redis_url, adopt_interval=0)
    plain.send_task("plus", (1,), queue="plus")
    plain.send_task("plus", (2,), queue="taken")
    client.rename("taken", ADOPTING)
    adopters("plus").look()
    assert [task[2] for task in tasks(rows)] == [{"a": 2}]
    assert left(client) == ["plus"]


def test_keys_that_are_no_lists_are_somebodys_own_but_for_ours(
    adopters: Adopters, plain: Celery, client: redis.Redis, rows: Rows
) -> None:
    client.set("plus", "somebody's")
    client.set(ADOPTING, "nobody's")
    plain.send_task("plus", (1,))
    adopters("plus").look()
    assert len(tasks(rows)) == 1
    assert left(client) == [f"celeriac:quarantine:{ADOPTING}:1", "plus"]


def test_another_application_on_the_same_redis_does_not_take_what_is_under_way(
    adopters: Adopters, plain: Celery, clone: Callable[[], str], redis_url: str, client: redis.Redis, rows: Rows
) -> None:
    plain.send_task("plus", (1,), queue="taken")
    client.rename("taken", ADOPTING)
    url = clone()
    other = Celeriac("x", settings=Settings(database_url=url, redis_url=redis_url), set_as_current=False)
    assert Adopter(other, lambda: {"elsewhere"}).look() is False
    assert left(client) == [ADOPTING]
    adopters("plus").look()
    assert len(tasks(rows)) == 1
    other.database.dispose()


def test_remote_control_and_events_are_never_looked_at(adopters: Adopters, client: redis.Redis) -> None:
    for key in ("a.reply.celery.pidbox", "celery@here.celery.pidbox", "celeryev.1"):
        client.lpush(key, "x")
    adopters("a.reply.celery.pidbox", "celery@here.celery.pidbox", "celeryev.1").look()
    assert left(client) == ["a.reply.celery.pidbox", "celery@here.celery.pidbox", "celeryev.1"]


def test_no_key_of_the_engines_is_taken_for_a_plain_queue(
    adopters: Adopters, plain: Celery, client: redis.Redis, rows: Rows
) -> None:
    """`celery -Q celeriac:tickets:plus`: what lies there are tickets, and those are the consumers'."""
    theirs = [ticket_key("plus"), adopting_key("one")]
    for key in theirs:
        plain.send_task("plus", (1,), queue=key)
    assert adopters(*theirs).look() is False
    assert left(client) == sorted(theirs)


def test_a_prefix_and_a_separator_are_kept_to(app: Celeriac, plain: Celery, client: redis.Redis, rows: Rows) -> None:
    for one in (app, plain):
        given = {"global_keyprefix": "ours:", "sep": "#"}
        one.conf.broker_transport_options = {**one.conf.broker_transport_options, **given}

    @app.task(role="plus", adopt=True, shared=False)
    def plus(a: int) -> None: ...

    app.register_roles()
    plain.send_task("plus", (1,), priority=3)
    assert client.llen("ours:celery#3") == 1
    adopter = Adopter(app, lambda: {"plus"})
    adopter.look()
    assert len(tasks(rows)) == 1
    assert app.enqueuer.kicker.flush(30)
    assert [key for key in left(client) if "kick" not in key and "kombu" not in key] == ["ours:celeriac:tickets:plus"]
    (ticket,) = app.dispatcher.run_pass(app.roles.get("plus").role).tickets
    assert app.publisher.publish([ticket])
    assert app.publisher.queued("plus", [ticket.token]) == {ticket.token}
