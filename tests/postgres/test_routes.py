"""Celery's `task_routes` gives a role that names no queue its own; which one it is, no call changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from kombu import Exchange, Queue, binding
from kombu.common import Broadcast

from celeriac import Celeriac, ConfigurationError, Settings, Task
from celeriac.errors import BadArguments
from tests.processes import Rows


@pytest.fixture
def elsewhere(database_url: str, redis_url: str) -> Celeriac:
    """Another code base, which routes nothing."""
    return Celeriac(
        "elsewhere", settings=Settings(database_url=database_url, redis_url=redis_url), set_as_current=False
    )


def declares(app: Celeriac, name: str = "media.encode", **options: Any) -> Task[..., Any]:
    @app.task(name=name, prompt=False, shared=False, **options)
    def encode(x: int = 0) -> None: ...

    return encode


def by_name_alone(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **_: Any) -> Any:
    return {"queue": "media"} if name.startswith("media.") else None


def by_a_text(name: str, *_: Any, **__: Any) -> str | None:
    return "media" if name == "media.encode" else None


ROUTES: Mapping[str, Any] = {
    "mapping": {"media.encode": {"queue": "media"}},
    "plain": {"media.encode": "media"},
    "pattern": {"media.*": {"queue": "media"}},
    "pairs": ([("media.*", {"queue": "media"}), ("*", {"queue": "rest"})],),
    "queue": {"media.encode": {"queue": Queue("media")}},
    "routing key": {"media.encode": {"queue": "media", "routing_key": "media.encode"}},
    "function": by_name_alone,
    "text": (by_a_text,),
    "first of two": ({"other": {"queue": "x"}}, {"media.encode": {"queue": "media"}}),
}


@pytest.fixture(params=ROUTES)
def routed(request: pytest.FixtureRequest, app: Celeriac) -> Task[..., Any]:
    app.conf.task_routes = ROUTES[request.param]
    return declares(app)


def test_a_role_that_names_no_queue_has_the_one_it_is_routed_to(
    routed: Task[..., Any], app: Celeriac, elsewhere: Celeriac, rows: Rows
) -> None:
    assert routed.role.queue == "media"
    assert "media" in app.amqp.queues.consume_from
    assert all(result.is_new for result in [routed.delay(1), routed.s(1).delay(), *routed.bulk([(1,)])])
    assert app.send_task("media.encode", (1,)).is_new
    app.register_roles()
    assert elsewhere.send_task("media.encode", (1,)).is_new
    assert rows("SELECT definition ->> 'queue' FROM celeriac.roles WHERE role = 'media.encode'") == [("media",)]
    elsewhere.publisher.close()
    elsewhere.database.dispose()


# Celery deprecates a task attribute of that name.
@pytest.mark.filterwarnings("ignore:(?s).*The 'queue' task attribute")
def test_a_queue_at_the_declaration_goes_before_routes(app: Celeriac) -> None:
    app.conf.task_routes = ROUTES["mapping"]
    task = declares(app, queue="own")
    assert task.role.queue == "own"
    assert task.delay(1).is_new


def test_what_no_route_names_has_celerys_default_queue(app: Celeriac) -> None:
    app.conf.task_routes = ROUTES["mapping"]
    task = declares(app, "sound.encode")
    assert task.role.queue == "celery"
    assert task.delay(1).is_new


@pytest.mark.parametrize("by_name", [None, False, True])
def test_a_role_that_no_route_names_has_a_queue_of_its_own_name(app: Celeriac, by_name: bool | None) -> None:
    app.conf.task_routes = ROUTES["mapping"]
    given: Any = {} if by_name is None else {"by_name": by_name}

    @app.task(role="sound.encode", shared=False, **given)
    def encode() -> None: ...

    @app.task(name="sound.named", shared=False, **given)
    def named() -> None: ...

    class Decode(Task):  # type: ignore[type-arg]
        role = "sound.decode"

        def run(self) -> None: ...

    decode = app.register_task(type("Decode", (Decode,), given)())
    assert (encode.role.queue, named.role.queue, decode.role.queue) == ("sound.encode", "celery", "sound.decode")


def test_a_queue_of_a_topic_is_a_queue(app: Celeriac) -> None:
    app.conf.task_queues = [Queue("media", Exchange("media", type="topic"), routing_key="media.#")]
    app.conf.task_routes = ROUTES["mapping"]
    assert declares(app).delay(1).is_new


@pytest.mark.parametrize("queue", ["media", Queue("media")], ids=["text", "queue"])
def test_a_call_may_say_the_queue_its_role_has_and_no_other(app: Celeriac, rows: Rows, queue: Any) -> None:
    app.conf.task_routes = ROUTES["mapping"]
    task = declares(app)
    assert task.apply_async((1,), queue=queue).is_new
    with pytest.raises(BadArguments, match="its queue is 'media', set where the role is declared; not 'other'"):
        task.apply_async((1,), queue="other")
    assert rows.one("SELECT count(*) FROM worker_tasks") == 1


def test_what_maps_a_routed_task_has_a_queue_of_its_own(app: Celeriac, rows: Rows) -> None:
    """Celery would send it where the task goes that it maps; a role has one queue."""
    app.conf.task_routes = ROUTES["mapping"]
    task = declares(app)
    app.register_roles()
    task.map([1, 2]).delay()
    task.starmap([(1,), (2,)]).delay()
    task.chunks([(1,), (2,)], 1).delay()
    assert rows("SELECT role, count(*) FROM worker_tasks GROUP BY role ORDER BY role") == [
        ("celery.map", 1), ("celery.starmap", 3),
    ]  # fmt: skip


def by_argument(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **_: Any) -> Any:
    return {"queue": kwargs["kind"]}


def to_nothing(*_: Any, **__: Any) -> Any:
    return {"queue": "a,b"}


@pytest.mark.parametrize(
    ("router", "why"),
    [
        (by_argument, r"role 'media.encode': task_routes: KeyError\('kind'\): a router is asked once for a role"),
        ("no.such.router", r"role 'media.encode': task_routes: .*No module named 'no'"),
        (to_nothing, "task_routes: queue='a,b' for 'media.encode': give"),
    ],
    ids=["by argument", "missing", "bad name"],
)  # fmt: skip
def test_a_router_that_cannot_tell_a_roles_queue_is_a_wrong_setting(app: Celeriac, router: Any, why: str) -> None:
    app.conf.task_routes = router
    with pytest.raises(ConfigurationError, match=why):
        declares(app).delay(1)


TOPICS = [
    Queue("high", Exchange("work", type="topic"), routing_key="work.high.#"),
    Queue("media", Exchange("media"), routing_key="encode"),
]


# Celery deprecates a task attribute of that name.
@pytest.mark.filterwarnings("ignore:(?s).*The 'queue' task attribute")
@pytest.mark.parametrize(("key", "queue"), [("encode", "media"), ("work.high.now", "high")])
def test_a_routing_key_alone_is_that_of_a_queue(app: Celeriac, key: str, queue: str) -> None:
    app.conf.task_queues = TOPICS
    task = declares(app, queue=queue)
    assert task.apply_async((1,), routing_key=key).is_new
    assert app.send_task("media.encode", (1,), routing_key=key).is_new
    assert task.s(1).set(routing_key=key).delay().is_new
    other = declares(app, "other")
    for refused in (key, "nowhere"):
        named = queue if refused == key else refused
        with pytest.raises(
            BadArguments, match=f"its queue is 'celery', .*; not '{named}': declare the task with queue="
        ):
            other.apply_async((1,), routing_key=refused)
    assert other.apply_async((1,), routing_key="celery").is_new, "the default one's"


@pytest.mark.filterwarnings("ignore:(?s).*The 'routing_key' task attribute")
def test_a_routing_key_at_the_declaration_or_of_a_route_gives_the_roles_queue(app: Celeriac) -> None:
    app.conf.task_queues = TOPICS
    app.conf.task_routes = {"routed": {"exchange": "work", "routing_key": "work.high.later"}}
    own, routed, lost = (
        declares(app, "own", routing_key="encode"),
        declares(app, "routed"),
        declares(app, "lost", routing_key="x"),
    )
    assert [task.role.queue for task in (own, routed, lost)] == ["media", "high", "celery"]
    for task in (own, routed, lost):
        assert task.delay(1).is_new
        assert task.apply_async((1,), countdown=1).is_new


@pytest.mark.filterwarnings("ignore:(?s).*The 'routing_key' task attribute")
def test_a_key_of_one_of_a_queues_bindings_leads_there(app: Celeriac) -> None:
    work = Exchange("work")
    app.conf.task_queues = [Queue("both", [binding(work, "one"), binding(work, "two")]), Queue("celery")]
    assert declares(app, routing_key="two").role.queue == "both"


@pytest.mark.filterwarnings("ignore:(?s).*The 'routing_key' task attribute")
def test_a_key_that_leads_to_several_queues_is_refused(app: Celeriac) -> None:
    """On Celery each of them gets the message: the task would run twice."""
    app.conf.task_queues = [
        *TOPICS,
        Queue("all", Exchange("work", type="topic"), routing_key="work.#"),
        Queue("celery"),
    ]
    with pytest.raises(ConfigurationError, match=r"'work.high.now' leads to the queues all, high of task_queues"):
        _ = declares(app, routing_key="work.high.now").role
    with pytest.raises(BadArguments, match=r"leads to the queues all, high"):
        declares(app, "called").apply_async((1,), routing_key="work.high.now")
    with pytest.raises(BadArguments, match=r"leads to the queues all, high"):
        app.send_task("elsewhere", (1,), routing_key="work.high.now")


def test_a_key_of_several_exchanges_leads_to_a_queue_once_the_exchange_is_named(app: Celeriac) -> None:
    """On Celery only the queue of that exchange gets the message."""
    one, other = (Queue(name, Exchange(name), routing_key="new") for name in ("mails", "sms"))
    app.conf.task_queues = [one, other, Queue("celery")]
    with pytest.raises(BadArguments, match=r"name that .*, or its exchange if they have different ones"):
        declares(app, "named", queues=("celery", "mails", "sms")).apply_async((1,), routing_key="new")
    app.register_roles()
    app.tasks["named"].apply_async((1,), routing_key="new", exchange="sms")
    with app.database.reading() as connection:
        assert connection.exec_driver_sql("SELECT queue FROM celeriac.tasks").scalars().all() == ["sms"]


@pytest.mark.parametrize("queue", [Broadcast("reload"), Broadcast("reload", queue="reload", unique=True)])
@pytest.mark.filterwarnings("ignore:(?s).*The 'queue' task attribute")
def test_a_broadcast_queue_is_refused_as_a_row_runs_once(app: Celeriac, queue: Any) -> None:
    app.conf.task_queues = [queue, Queue("celery")]
    app.conf.task_routes = {"media.*": {"queue": "reload", "exchange": "reload"}}
    refused = "on its queue 'reload' each worker would get its tasks .*@control_command"
    with pytest.raises(ConfigurationError, match=r"role 'media.encode': " + refused):
        _ = declares(app).role
    with pytest.raises(ConfigurationError, match=r"role 'own': " + refused):
        _ = declares(app, "own", queue="reload").role
    with pytest.raises(ConfigurationError, match=r"role 'more': " + refused):
        _ = declares(app, "more", queues=("other", "reload")).role
