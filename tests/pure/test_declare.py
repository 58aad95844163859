"""`@app.task(…)` is refused where it stands, at import, if its options make no role."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from celeriac import Celeriac, ConfigurationError, Settings, days
from celeriac.roles.backoff import Backoff
from celeriac.roles.declare import CELERYS, Declared, declare
from celeriac.roles.options import CELERY_OPTIONS, OPTIONS, RETRY_OPTIONS
from celeriac.roles.role import Role
from celeriac.seam.decorator import TaskOptions
from tests.pure.test_roles import INVALID, flat

NAN = float("nan")


@pytest.fixture
def app() -> Celeriac:
    nowhere = Settings(database_url="postgresql://nowhere.invalid/", redis_url="redis://nowhere.invalid/")
    return Celeriac("shop", settings=nowhere, set_as_current=False)


def handler(this: int, store_id: int = 0) -> None: ...


def role(options: dict[str, Any], app: Celeriac) -> Role:
    @app.task(shared=False, **options)
    def build(account_id: int, store_id: int = 0) -> None: ...

    return declared(app, build).role


def declared(app: Celeriac, task: Any) -> Declared:
    found = app.roles.get(task.name)
    assert found is not None
    return found


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("lock_bye", "lock_by"), ("max_retrys", "max_retries"), ("rolle", "role"), ("soft_timelimit", "soft_time_limit")],
)
def test_an_unknown_option_suggests_the_right_spelling(wrong: str, right: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"role 'build': there is no option '{wrong}'; did you mean '{right}'?"
    ):
        declare({"role": "build", wrong: 1})


def test_a_switch_that_says_neither_is_refused_where_the_role_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QM_BUILDS", "disabled")
    with pytest.raises(ConfigurationError, match=r"^QM_BUILDS='disabled' is not usable: give true or false"):
        declare({"role": "build", "enabled_by": "QM_BUILDS"})


def test_an_option_like_no_other_becomes_an_attribute_as_with_celery(app: Celeriac) -> None:
    @app.task(role="build", shared=False, audience="shops", retry_on="Mondays")
    def build() -> None: ...

    assert (build.audience, build.retry_on) == ("shops", "Mondays")


def test_a_priority_is_the_roles_and_no_attribute_that_celery_warns_of(app: Celeriac) -> None:
    assert role({"role": "build", "priority": 10}, app).priority == 10


@pytest.mark.parametrize(("option", "value"), [p for p in flat(INVALID) if p.values[0] not in ("name", "queue")])
def test_an_invalid_value_is_refused_by_the_decorator(app: Celeriac, option: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^role 'build': {option}="):
        app.task(**{"role": "build", "shared": False, option: value})(print)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("autoretry_for", "ValueError"), ("autoretry_for", (ValueError, "x")), ("autoretry_for", 5),
        ("autoretry_for", ValueError()), ("dont_autoretry_for", (int,)),
        ("retry_backoff", -1), ("retry_backoff", "5"), ("retry_backoff", NAN), ("retry_backoff", float("inf")),
        ("retry_backoff_max", None), ("retry_backoff_max", -1), ("retry_backoff_max", float("inf")),
        ("retry_jitter", -0.1), ("retry_jitter", 1.1), ("retry_jitter", NAN), ("retry_jitter", "yes"),
        ("retry_jitter", None), ("retry_kwargs", 5),
    ],
)  # fmt: skip
def test_celerys_retry_options_are_checked_too(option: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^role 'build': {option}=.*: give "):
        declare({"role": "build", option: value})


@pytest.mark.parametrize(("option", "value"), [("soft_time_limit", -1), ("time_limit", "60"), ("time_limit", NAN)])
def test_celerys_time_limits_are_checked_too(option: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^role 'build': (hard_)?timeout="):
        declare({"role": "build", option: value})


def test_max_retries_said_celerys_other_way_is_checked_too() -> None:
    with pytest.raises(ConfigurationError, match=r"^role 'build': max_retries=-1: give "):
        declare({"role": "build", "autoretry_for": [OSError], "retry_kwargs": {"max_retries": -1}})


@pytest.mark.parametrize("name", INVALID["name"][:-1])
def test_an_unusable_name_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="give 1 to 200 printable characters"):
        declare({"role": name})


def test_a_role_and_another_name_are_one_too_many() -> None:
    with pytest.raises(ConfigurationError, match=r"role 'a': name='b': .* give one of them"):
        declare({"role": "a", "name": "b"})
    assert declare({"role": "a", "name": "a"})["name"] == "a"


def test_no_role_may_pose_as_the_ticket() -> None:
    with pytest.raises(ConfigurationError, match="belongs to the tickets"):
        declare({"name": "celeriac.ticket"})


@pytest.mark.parametrize("options", [{"role": "build"}, {"name": "build"}])
def test_what_is_wrong_is_told_with_the_roles_name(app: Celeriac, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"^role 'build': there is no option 'lok_by'"):
        app.task(**options, lok_by="x")(handler)


def test_a_role_without_a_name_is_told_by_its_handlers(app: Celeriac) -> None:
    with pytest.raises(ConfigurationError, match=rf"^role '{handler.__module__}.handler': window=0"):
        app.task(window=0)(handler)


@pytest.mark.parametrize("options", [{}, {"bind": True}])
def test_a_key_of_no_parameter_is_refused_where_the_handler_stands(app: Celeriac, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"lock_by='stor_id': .* did you mean 'store_id'\?$"):
        app.task(role="build", lock_by="stor_id", shared=False, **options)(handler)


def test_self_is_no_key(app: Celeriac) -> None:
    with pytest.raises(ConfigurationError, match="takes no 'this'"):
        app.task(role="build", lock_by="this", bind=True, shared=False)(handler)
    app.task(role="build", lock_by="this", shared=False)(handler)


def test_the_decorator_takes_a_handler_with_options_in_one_call(app: Celeriac) -> None:
    assert app.task(handler, role="build", shared=False).name == "build"


@pytest.mark.parametrize("options", [{}, {"role": "build"}])
def test_what_is_no_handler_is_refused_as_celery_does(app: Celeriac, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="must be a callable"):
        app.task(5, **options)


def test_options_are_split_into_celerys_and_ours() -> None:
    split = declare({"role": "build", "bind": True, "serializer": "json", "lock_by": "x", "max_retries": 4})
    assert split == {
        "name": "build", "bind": True, "serializer": "json", "max_retries": 4, "_has_role": True,
        "role_options": {"lock_by": "x", "max_retries": 4, "by_name": True},
    }  # fmt: skip


def test_type_checkers_know_every_option_there_is() -> None:
    assert set(TaskOptions.__annotations__) | {"bind"} == OPTIONS | RETRY_OPTIONS | CELERY_OPTIONS | {"role"}


def test_no_option_is_both_celerys_and_ours() -> None:
    assert not CELERY_OPTIONS & (OPTIONS | RETRY_OPTIONS)


# -- the role a task gets ----------------------------------------------------------------------------------------------


def test_a_task_without_options_is_a_role_of_its_own_name_on_celerys_default_queue(app: Celeriac) -> None:
    @app.task(shared=False)
    def ordinary() -> None: ...

    made = declared(app, ordinary).role
    assert made == Role(name=ordinary.name, by_name=made.by_name, queue="celery", **CELERYS)


def test_a_declared_role_stores_its_arguments_by_name_unless_told_otherwise(app: Celeriac) -> None:
    assert role({"role": "a"}, app).by_name
    assert not role({"role": "b", "by_name": False}, app).by_name
    assert not role({"name": "c"}, app).by_name


def test_celerys_names_for_retries_become_the_roles(app: Celeriac) -> None:
    made = role(
        {
            "role": "build", "autoretry_for": [OSError], "dont_autoretry_for": FileNotFoundError, "max_retries": None,
            "retry_backoff": timedelta(minutes=1), "retry_backoff_max": 86_400, "retry_jitter": 0.2,
        },
        app,
    )  # fmt: skip
    assert (made.retry_for, made.dont_retry_for, made.max_retries) == ((OSError,), (FileNotFoundError,), None)
    assert made.backoff == Backoff(base=60, maximum=86_400, jitter=0.2)


@pytest.mark.parametrize(
    ("given", "backoff"),
    [(False, None), (None, None), (0, None), (True, Backoff()), (5, Backoff(base=5))],
)
def test_retry_backoff_means_what_celery_means_by_it(app: Celeriac, given: Any, backoff: Backoff | None) -> None:
    assert role({"role": "build", "retry_backoff": given}, app).backoff == backoff


def test_max_retries_in_retry_kwargs_counts_as_it_does_for_celery(app: Celeriac) -> None:
    given = {"role": "build", "max_retries": 3, "retry_kwargs": {"max_retries": 9, "countdown": 1}}
    made = role(given | {"autoretry_for": [OSError]}, app)
    assert made.max_retries == 9


@pytest.mark.parametrize(
    ("options", "timeout", "hard_timeout"),
    [
        ({}, 300, None),
        ({"timeout": None}, None, None),
        ({"soft_time_limit": 5, "time_limit": 9}, 5, 9),
        ({"time_limit": 9}, None, 9),
        ({"time_limit": 0}, None, None),
        ({"timeout": 3, "time_limit": 9}, 3, 9),
        ({"timeout": None, "time_limit": 9}, None, 9),
        ({"hard_timeout": 8, "soft_time_limit": 5, "time_limit": 9}, 5, 8),
    ],
)
def test_celerys_time_limits_are_the_roles_where_it_says_nothing(
    app: Celeriac, options: dict[str, Any], timeout: float | None, hard_timeout: float | None
) -> None:
    made = role({"role": "build"} | options, app)
    assert (made.timeout, made.hard_timeout) == (timeout, hard_timeout)


def test_the_signature_is_the_handlers_without_self(app: Celeriac) -> None:
    @app.task(shared=False, bind=True, role="bound", autoretry_for=(OSError,))
    def bound(self: Any, account_id: int, *, size: int = 1) -> None: ...

    assert declared(app, bound).signature.names == ["account_id", "size"]


def test_a_key_the_handler_does_not_take_is_refused(app: Celeriac) -> None:
    with pytest.raises(
        ConfigurationError, match=r"role 'build': lock_by='shop': .* takes no 'shop'; known are: account_id, "
    ):
        role({"role": "build", "lock_by": "shop"}, app)


def test_the_row_holds_name_definition_and_parameters(app: Celeriac) -> None:
    @app.task(shared=False, role="build", lock_by="store_id", keep=days(1))
    def build(store_id: int, size: float = 1.5) -> None: ...

    row = declared(app, build).row()
    assert row["role"] == "build"
    assert row["definition"]["lock_by"] == "store_id"
    assert row["parameters"] == [
        {"name": "store_id", "kind": "POSITIONAL_OR_KEYWORD"},
        {"name": "size", "kind": "POSITIONAL_OR_KEYWORD", "default": 1.5},
    ]


def test_of_celerys_own_tasks_only_those_that_workflows_need_are_roles(app: Celeriac) -> None:
    app.finalize()
    assert {"celery.backend_cleanup", "celery.chord", "celeriac.ticket"} <= set(app.tasks)
    theirs = [d.role for d in app.roles.all() if d.role.name.startswith(("celery.", "celeriac."))]
    names = {role.name for role in theirs} - {"celery.ping"}  # of `celery.contrib.testing`, where somebody imported it
    assert names == {"celery.accumulate", "celery.map", "celery.starmap"}
    assert {role.queue for role in theirs} == {"celery"}
