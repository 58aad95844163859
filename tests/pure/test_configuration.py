"""What a user sets wins where it can mean something; what cannot is named, and nothing replaces the row backend."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Task

from celeriac import Celeriac, ConfigurationError
from celeriac.seam.backend import RowBackend
from celeriac.seam.configuration import diverts_calls
from celeriac.seam.serializers import TO_DO
from celeriac.seam.task import Task as RowTask
from tests.pure.configured import WAYS, Make, by_object, by_update

OTHER = "redis://elsewhere.invalid:6379/0"


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
        task_send_sent_event=True, task_store_eager_result=True, worker_soft_shutdown_timeout=30, worker_direct=True,
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
        "task_store_eager_result=True is not used: the result of an eager call is its caller's alone",
        "worker_direct=True is not used: no task is sent to one worker's own queue; list a role's queues in `queues=` "
        "and start workers with `-Q`",
        "worker_max_tasks_per_child=100 counts tickets, each of which carries up to its role's chunk of tasks",
        "worker_soft_shutdown_timeout=30 is not used: every stop lets tasks end for CELERIAC_DRAIN_GRACE_MS, and hands "
        "back the rest",
        f"task_serializer='pickle': {TO_DO}",
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
    assert note.startswith("beat_scheduler='redbeat.RedBeatScheduler' runs schedules of its own, and those of ")


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
