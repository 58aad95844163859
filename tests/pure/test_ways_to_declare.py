"""However a task is declared, the same options make its role, are checked, and suggest the right spelling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from weakref import WeakSet

import celery
import pytest
from celery import _state, shared_task

from celeriac import FOREVER, Celeriac, ConfigurationError, Settings
from celeriac.roles.role import Role
from celeriac.seam.task import Task

OPTIONS: dict[str, Any] = {
    "lock_by": "store_id", "unique_by": "store_id", "max_retries": 7, "autoretry_for": (OSError,), "retry_backoff": 5,
    "timeout": 30, "keep": timedelta(days=3), "window": 9,
}  # fmt: skip


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Celeriac]:
    """Alone in the process: shared tasks are every app's."""
    monkeypatch.setattr(_state, "_apps", WeakSet())
    monkeypatch.setattr(_state, "_on_app_finalizers", set())
    nowhere = Settings(database_url="postgresql://nowhere.invalid/", redis_url="redis://nowhere.invalid/")
    before = _state._tls.current_app
    yield Celeriac("shop", settings=nowhere)
    _state._set_current_app(before)


def run(self: Any, store_id: int) -> None: ...


def by_decorator(app: Celeriac, **options: Any) -> Any:
    @app.task(shared=False, **options)
    def sync(store_id: int) -> None: ...

    return sync


def by_shared_task(app: Celeriac, **options: Any) -> Any:
    @shared_task(**options)
    def sync(store_id: int) -> None: ...

    return sync


def by_class(app: Celeriac, **options: Any) -> Any:
    return app.register_task(type("Sync", (app.Task,), {"run": run} | options))


def by_class_of_celerys(app: Celeriac, **options: Any) -> Any:
    return app.register_task(type("Sync", (celery.Task,), {"run": run} | options)())


def by_registering(app: Celeriac, **options: Any) -> Any:
    return app.register_task(type("Sync", (celery.Task,), {"run": run}), **options)


def by_base(app: Celeriac, **options: Any) -> Any:
    name = {k: options.pop(k) for k in ("role", "name") if k in options}
    return by_decorator(app, base=type("Base", (celery.Task,), options), **name)


WAYS = [by_decorator, by_shared_task, by_class, by_class_of_celerys, by_registering, by_base]

Way = Callable[..., Any]


def role(app: Celeriac, name: str) -> Role:
    declared = app.roles.get(name)
    assert declared is not None
    return declared.role


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["role", "name"])
def test_the_same_options_make_the_same_role(app: Celeriac, way: Way, name: str) -> None:
    task = way(app, **{name: "sync"}, **OPTIONS)
    made = role(app, "sync")
    assert (made.lock_by, made.unique_by, made.max_retries, made.window) == ("store_id", "store_id", 7, 9)
    assert (made.retry_for, made.backoff and made.backoff.base) == ((OSError,), 5)
    assert (made.timeout, made.keep) == (30, timedelta(days=3))
    assert made.by_name is (name == "role")
    assert isinstance(app.tasks["sync"], Task)
    assert task.name == "sync"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"lok_by": "store_id"}, r"there is no option 'lok_by'; did you mean 'lock_by'\?"),
        ({"window": 0}, "window=0: give 1 to 1,000,000 tasks"),
        ({"lock_by": "shop_id"}, "the handler takes no 'shop_id'"),
    ],
)
def test_what_is_wrong_is_refused_by_name(app: Celeriac, way: Way, wrong: dict[str, Any], says: str) -> None:
    def declare() -> None:
        way(app, name="sync", **wrong)
        app.finalize()
        app.roles.all()

    with pytest.raises(ConfigurationError, match=says):
        declare()


@pytest.mark.parametrize("way", WAYS)
def test_an_option_that_is_nobodys_becomes_an_attribute(app: Celeriac, way: Way) -> None:
    way(app, name="sync", audience="shops")
    if way is not by_registering:  # Celery itself reads nothing but retries there
        assert app.tasks["sync"].audience == "shops"


@pytest.mark.parametrize("way", WAYS)
def test_no_task_has_a_result_backend_of_its_own(app: Celeriac, way: Way) -> None:
    way(app, name="sync", backend="rpc://", acks_late=True)
    if way is not by_registering:
        assert app.tasks["sync"].backend is app.backend
        assert app.notes() == [
            "acks_late of sync is not used: a task whose process dies runs again, up to its role's max_losses",
            "backend of sync is not used: results are the tasks' rows in Postgres",
        ]


def test_methods_of_a_class_are_no_options_whatever_their_names(app: Celeriac) -> None:
    class Sync(app.Task):  # type: ignore[name-defined,misc]
        name = "sync"
        prompts = ("a plural is no misspelling",)

        def window(self) -> int:
            return 5

        @property
        def keep(self) -> str:
            return "mine"

        @staticmethod
        def lock_by(arguments: Any) -> str:
            return str(arguments["store_id"])

        def run(self, store_id: int) -> None: ...

    app.register_task(Sync())
    made = role(app, "sync")
    assert (made.window, made.keep) == (Role(name="x").window, timedelta(days=1))
    assert callable(made.lock_by)
    assert made.lock_by({"store_id": 7}) == "7"


def test_a_bare_decorator_stores_positional_arguments_as_such_like_any_without_a_role(app: Celeriac) -> None:
    @app.task
    def bare(n: int) -> None: ...

    @shared_task
    def shared(n: int) -> None: ...

    assert not role(app, bare.name).by_name
    assert not role(app, shared.name).by_name


def test_result_expires_is_how_long_rows_stay_whose_role_does_not_say(app: Celeriac) -> None:
    app.conf.result_expires = 3600
    by_decorator(app, name="hour")
    by_decorator(app, name="three days", keep=timedelta(days=3))
    assert role(app, "hour").keep == timedelta(hours=1)
    assert role(app, "three days").keep == timedelta(days=3)


def test_a_role_has_the_queue_master_s_defaults_and_a_plain_task_celery_s(app: Celeriac) -> None:
    by_decorator(app, name="plain")
    by_decorator(app, role="ours")
    assert (role(app, "plain").keep, role(app, "plain").timeout) == (timedelta(days=1), None)
    assert (role(app, "ours").keep, role(app, "ours").timeout) == (timedelta(days=30), 300)


@pytest.mark.parametrize("never", [None, 0, timedelta(0)])
def test_results_that_never_expire_stay_for_ever(app: Celeriac, never: Any) -> None:
    app.conf.result_expires = never
    by_decorator(app, name="ever")
    assert role(app, "ever").keep == FOREVER


def test_results_that_never_expire_may_be_said_in_old_names_too(app: Celeriac) -> None:
    app.config_from_object({"CELERY_TASK_RESULT_EXPIRES": None})
    by_decorator(app, name="ever")
    assert role(app, "ever").keep == FOREVER


def test_a_handler_of_no_module_is_a_task_too(app: Celeriac) -> None:
    """As in a text that is executed."""
    exec("@app.task(name='sync', lock_by='n')\ndef sync(n): ...", {"app": app, "__name__": None})
    assert role(app, "sync").lock_by == "n"
