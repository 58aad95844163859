"""What a user sets wins where it can mean something; what cannot is named, and nothing replaces the row backend."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Task
from flower.utils.broker import Broker

from celeriac import Celeriac, ConfigurationError, Settings
from celeriac.dispatch.publish import SHORT_FUSE
from celeriac.seam.backend import RowBackend
from celeriac.seam.configuration import diverts_calls
from celeriac.seam.task import Task as RowTask
from celeriac.testing.servers import pointed

REDIS = "redis://nowhere.invalid:6379/0"
OTHER = "redis://elsewhere.invalid:6379/0"

Make = Callable[..., Celeriac]


@pytest.fixture
def make() -> Make:
    def make(
        redis_url: str | None = REDIS, max_concurrent_tasks: float = 3, redis_master: str | None = None, **options: Any
    ) -> Celeriac:
        settings = Settings(
            database_url="postgresql://nowhere.invalid/",
            redis_url=redis_url,
            redis_master=redis_master,
            max_concurrent_tasks=max_concurrent_tasks,
        )
        return Celeriac("shop", settings=settings, set_as_current=False, **options)

    return make


def by_constructor(make: Make, **given: Any) -> Celeriac:
    return make(**given)


def by_object(make: Make, **given: Any) -> Celeriac:
    app = make()
    app.config_from_object(SimpleNamespace(**given))
    return app


def by_namespace(make: Make, **given: Any) -> Celeriac:
    """As Django's users do."""
    app = make()
    app.config_from_object(SimpleNamespace(**{f"CELERY_{k.upper()}": v for k, v in given.items()}), namespace="CELERY")
    return app


def by_update(make: Make, **given: Any) -> Celeriac:
    app = make()
    app.conf.update(given)
    return app


def read_again(make: Make, **given: Any) -> Celeriac:
    app = make()
    assert app.conf.worker_prefetch_multiplier == 1
    app.config_from_object(SimpleNamespace(**given))
    return app


def by_defaults(make: Make, **given: Any) -> Celeriac:
    app = make()
    app.add_defaults(given)
    return app


WAYS = [by_constructor, by_object, by_namespace, by_update, read_again, by_defaults]


@pytest.mark.parametrize("read_before", [False, True])
def test_what_is_set_goes_above_the_users_own_defaults(make: Make, read_before: bool) -> None:
    app = make()
    assert not read_before or app.conf.worker_prefetch_multiplier == 1
    app.add_defaults({"worker_prefetch_multiplier": 4, "result_backend": "redis://one.invalid", "task_acks_late": True})
    assert app.conf.worker_prefetch_multiplier == 4
    app.conf.worker_prefetch_multiplier = 5
    app.conf.result_backend = "redis://two.invalid"
    assert (app.conf.worker_prefetch_multiplier, app.conf.result_backend) == (5, "redis://two.invalid")
    assert app.conf.task_acks_late is False, "what rows need stays above both"
    assert [note.split("=")[0] for note in app.notes()] == ["result_backend", "task_acks_late"]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_user_sets_wins_however_it_is_said(make: Make, way: Callable[..., Celeriac]) -> None:
    app = way(make, worker_concurrency=7, worker_prefetch_multiplier=4, broker_connection_max_retries=9)
    assert (app.conf.worker_concurrency, app.conf.worker_prefetch_multiplier) == (7, 4)
    assert app.conf.broker_connection_max_retries == 9
    assert app.conf.broker_connection_retry_on_startup is True, "the usual, where nothing is said"
    assert app.notes() == []


@pytest.mark.parametrize("given", [{"task_always_eager": True}, {"task_routes": {"a": "b"}}])
@pytest.mark.parametrize("way", WAYS)
def test_what_diverts_calls_is_heard_however_it_is_said(
    make: Make, way: Callable[..., Celeriac], given: dict[str, Any]
) -> None:
    app = way(make, **given)
    assert diverts_calls(app.conf)
    assert diverts_calls(app.conf), "read by now"
    app = way(make, **dict.fromkeys(given))
    assert not diverts_calls(app.conf)
    app.conf.update(given)
    assert diverts_calls(app.conf)


def test_old_names_win_as_well(make: Make) -> None:
    app = make()
    app.config_from_object(
        SimpleNamespace(CELERYD_CONCURRENCY=7, CELERY_RESULT_BACKEND="db+sqlite://", CELERY_ROUTES={"a": "b"})
    )
    assert app.conf.worker_concurrency == 7
    assert diverts_calls(app.conf)
    assert app.conf.worker_prefetch_multiplier == 1
    assert app.notes() == ["result_backend='db+sqlite://' is not used: results are the tasks' rows in Postgres"]


@pytest.mark.parametrize("way", WAYS)
def test_no_configured_backend_takes_the_place_of_the_rows(make: Make, way: Callable[..., Celeriac]) -> None:
    app = way(make, result_backend="redis://:secret@nowhere.invalid/1")
    assert isinstance(app.backend, RowBackend)
    (note,) = app.notes()
    assert note.startswith("result_backend='redis://")
    assert "secret" not in note
    assert note.endswith("is not used: results are the tasks' rows in Postgres")


def test_neither_does_one_of_the_constructor_of_the_environment_or_of_an_attribute(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(make(backend="rpc://").backend, RowBackend)
    monkeypatch.setenv("CELERY_RESULT_BACKEND", "rpc://")
    app = make()
    app._backend = SimpleNamespace(thread_safe=True)
    assert isinstance(app.backend, RowBackend)
    assert app.notes() == ["CELERY_RESULT_BACKEND='rpc://' is not used: results are the tasks' rows in Postgres"]


def test_what_cannot_mean_anything_is_named_with_what_happens_instead(make: Make) -> None:
    app = by_object(
        make, task_acks_late=True, task_serializer="pickle", accept_content=["pickle", "json"], redis_max_connections=4,
        task_reject_on_worker_lost=True, worker_max_tasks_per_child=100, beat_sync_every=5, security_key="/a/key",
        task_send_sent_event=True,
    )  # fmt: skip
    assert app.notes() == [
        "accept_content=['pickle', 'json'] is not used: arguments and results are JSON",
        "beat_sync_every=5 is not used: schedules are rows, at which beat looks at least once a second",
        "redis_max_connections=4 is not used: results are the tasks' rows in Postgres",
        "security_key='********' is not used: Postgres and Redis ask who writes to them",
        "task_acks_late=True is not used: a task whose process dies runs again, up to its role's max_losses",
        "task_reject_on_worker_lost=True is not used: a task whose process dies runs again, up to its role's "
        "max_losses",
        "task_send_sent_event=True is not used: a row says when it was enqueued, and by whom",
        "task_serializer='pickle' is not used: arguments and results are JSON",
        "worker_max_tasks_per_child=100 counts tickets, each of which carries up to its role's chunk of tasks",
    ]
    assert (app.conf.task_serializer, app.conf.accept_content, app.conf.task_acks_late) == ("json", ["json"], False)


def test_what_says_the_usual_is_not_worth_a_word(make: Make) -> None:
    app = by_object(
        make, task_serializer="json", result_serializer="json", accept_content=("json",), task_acks_late=False,
        timezone="Europe/Berlin", enable_utc=True, task_routes={}, broker_transport_options={"socket_timeout": 3},
    )  # fmt: skip
    assert app.notes() == []


def test_options_of_the_connection_are_completed_but_for_what_tickets_need(make: Make) -> None:
    app = by_object(
        make,
        broker_transport_options={"socket_timeout": 3, "visibility_timeout": 9, "priority_steps": [0, 5]},
    )
    options = app.connection_for_read().transport_options
    assert options["socket_timeout"] == 3
    assert options["socket_connect_timeout"] == 5
    assert (options["ack_emulation"], options["priority_steps"]) == (False, [0])
    assert [note.partition(" is ")[0] for note in app.notes()] == [
        "broker_transport_options['priority_steps']=[0, 5]", "broker_transport_options['visibility_timeout']=9",
    ]  # fmt: skip


def test_the_configured_concurrency_wins_over_the_variable_and_says_so(make: Make) -> None:
    app = by_object(lambda: make(max_concurrent_tasks=8), worker_concurrency=5)
    assert app.conf.worker_concurrency == 5
    assert app.notes() == ["MAX_CONCURRENT_TASKS=8 is not used: the configuration says worker_concurrency=5"]
    assert make(max_concurrent_tasks=8).conf.worker_concurrency == 8


def test_a_scheduler_of_another_kind_is_used_and_named(make: Make) -> None:
    app = by_object(make, beat_scheduler="redbeat.RedBeatScheduler")
    assert app.conf.beat_scheduler == "redbeat.RedBeatScheduler"
    (note,) = app.notes()
    assert note.startswith("beat_scheduler='redbeat.RedBeatScheduler' keeps schedules of its own: run a beat with `-S ")


# -- the broker --------------------------------------------------------------------------------------------------------


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
        ("sentinel://a;redis://:x@b", "a", {}, r"^'sentinel://a;redis://\*\*@b': with Sentinels each address is one"),
        ("sentinel://a;user:x@b", "a", {}, r"^'sentinel://a.*;\*\*': with Sentinels each address is one"),
        ("sentinel://a:no", "a", {}, r"^'sentinel://a:no' cannot be read .*: give sentinel://host:port$"),
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


# -- base classes ------------------------------------------------------------------------------------------------------


class Noting(Task):
    def greet(self) -> str:
        return "hello"


@pytest.mark.parametrize("given", [Noting, f"{__name__}:Noting"])
def test_a_base_class_of_the_whole_app_stays_and_its_calls_are_rows(make: Make, given: Any) -> None:
    app = make(task_cls=given)

    @app.task(shared=False)
    def work() -> None: ...

    class Sync(app.Task):  # type: ignore[name-defined,misc]
        name = "sync"

        def run(self) -> None: ...

    for task in (work, app.register_task(Sync())):
        assert isinstance(task._get_current_object() if task is work else task, RowTask)
        assert task.greet() == "hello"


@pytest.mark.parametrize(
    ("said", "blamed"),
    [
        ({"task_time_limit": "x"}, r"task_time_limit='x': give seconds"),
        ({"task_soft_time_limit": -1}, r"task_soft_time_limit=-1: give seconds"),
        ({"task_default_priority": "high"}, r"task_default_priority='high': give a whole number"),
        ({"task_default_queue": "a,b"}, r"task_default_queue='a,b': give 1 to 200"),
        ({"task_default_rate_limit": "1/d"}, r"task_default_rate_limit='1/d': give a number a second"),
        ({"result_expires": "a day"}, r"result_expires='a day': give seconds"),
        ({"result_expires": -1}, r"result_expires=-1: give seconds"),
        ({"result_expires": 1e20}, r"result_expires=1e\+20: give seconds"),
        ({"task_annotations": 5}, r"task_annotations=5: give a dict"),
        ({"task_annotations": {"*": 5}}, r"task_annotations\['\*'\]=5: give a dict"),
        ({"task_annotations": {"*": {"time_limit": "x"}}}, r"task_annotations\['\*'\]: time_limit='x': give seconds"),
        ({"task_annotations": {"*": {"window": 0}}}, r"task_annotations\['\*'\]: window=0: give 1"),
        ({"task_annotations": {"*": {"rate_limit": "1/d"}}}, r"task_annotations\['\*'\]: rate_limit='1/d': give a nu"),
        ({"task_annotations": "no.such"}, r"task_annotations: ModuleNotFoundError"),
        ({"task_routes": {"*": {"queue": "a,b"}}}, r"task_routes: queue='a,b'"),
    ],
    ids=str,
)
def test_a_wrong_setting_of_all_roles_is_blamed_by_its_name(make: Make, said: dict[str, Any], blamed: str) -> None:
    app = by_update(make, **said)
    with pytest.raises(ConfigurationError, match=f"^{blamed}"):
        app.roles.all()


def test_settings_of_all_roles_that_fit_are_theirs(make: Make) -> None:
    annotations = ({"*": {"time_limit": 9}}, SimpleNamespace(annotate=lambda _: {"window": 7}))
    app = by_update(make, task_time_limit=0, task_soft_time_limit=5, task_annotations=annotations)

    @app.task(name="mine", shared=False)
    def mine() -> None: ...

    role = mine.role
    assert (role.timeout, role.hard_timeout, role.window) == (5, 9, 7)
