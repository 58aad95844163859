"""What a call says beside its arguments and no row can honour is refused with what to say instead: never lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery.canvas import Signature

from celeriac import Celeriac, Settings, Task
from celeriac.errors import BadArguments

NOW = datetime.now(UTC)


@pytest.fixture
def build() -> Task[..., Any]:
    """Of an app without Postgres: what is not refused fails otherwise."""
    nowhere = Settings(database_url="postgresql://nowhere.invalid/", redis_url="redis://nowhere.invalid/")
    app = Celeriac("shop", settings=nowhere, set_as_current=False)

    @app.task(role="build", shared=False)
    def build(x: int = 0) -> None: ...

    return build


SINGLE: dict[str, Callable[..., Any]] = {
    "using": lambda task, **options: task.using(**options).delay(1),
    "apply_async": lambda task, **options: task.apply_async((1,), **options),
    "signature": lambda task, **options: task.s(1).apply_async(**options),
    "set": lambda task, **options: task.s(1).set(**options).delay(),
    "send_task": lambda task, **options: task.app.send_task(task.name, (1,), **options),
    "signature by name": lambda task, **options: Signature(task.name, (1,), app=task.app).apply_async(**options),
}
MANY: dict[str, Callable[..., Any]] = {
    "bulk": lambda task, **options: task.bulk([(1,)], **options),
    "enqueue_many": lambda task, **options: task.app.enqueue_many(task.name, [(1,)], **options),
}


@pytest.fixture(params=SINGLE | MANY)
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return (SINGLE | MANY)[request.param]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("sesion", "session"), ("prioritty", "priority"), ("count_down", "countdown"), ("max_retrys", "max_retries")],
)
def test_a_misspelt_option_is_refused_with_the_right_spelling(
    build: Task[..., Any], call: Callable[..., Any], wrong: str, right: str
) -> None:
    with pytest.raises(
        BadArguments,
        match=f"^build: a call has no option '{wrong}'; did you mean '{right}'\\?; nothing was enqueued$",
    ):
        call(build, **{wrong: 1})


def test_an_option_like_no_other_is_answered_with_those_there_are(
    build: Task[..., Any], call: Callable[..., Any]
) -> None:
    with pytest.raises(BadArguments, match=r"no option 'zzz'; known are: account, .*unique_key; nothing was enqueued"):
        call(build, zzz=1)


@pytest.mark.parametrize("option", ["task_id", "delay", "at", "expires_in", "parent_id", "headers"])
def test_a_bulk_takes_only_what_may_be_the_same_for_all(build: Task[..., Any], option: str) -> None:
    given: dict[str, Any] = {option: "1"}
    with pytest.raises(BadArguments, match=f"no option '{option}'.*; nothing was enqueued"):
        build.bulk([(1,)], **given)


@pytest.mark.parametrize("limit", ["time_limit", "soft_time_limit"])
@pytest.mark.parametrize("call", SINGLE.values(), ids=SINGLE)
def test_a_time_limit_that_is_none_is_refused(build: Task[..., Any], call: Callable[..., Any], limit: str) -> None:
    with pytest.raises(BadArguments, match="timeout='5': give seconds above 0"):
        call(build, **{limit: "5"})


# -- times -------------------------------------------------------------------------------------------------------------

SECONDS = "seconds, at most 100 years away"
TIME = "a datetime or an ISO 8601 time"


@pytest.mark.parametrize(
    ("option", "value", "right"),
    [
        *[("countdown", bad, SECONDS) for bad in ("5", timedelta(seconds=5), True, False, math.nan, 1e12, [], NOW)],
        *[("eta", bad, TIME) for bad in (5, 0, timedelta(seconds=5), True, object())],
        *[("eta", bad, "an ISO 8601 time") for bad in ("soon", "5", "")],
        *[("expires", bad, f"{SECONDS}, {TIME}") for bad in (timedelta(seconds=5), True, math.inf, object())],
        *[("expires", bad, "an ISO 8601 time") for bad in ("x", "5")],
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_what_is_no_time_is_refused(
    build: Task[..., Any], call: Callable[..., Any], option: str, value: object, right: str
) -> None:
    with pytest.raises(BadArguments, match=f"^build: {option}=.*: give {right}; nothing was enqueued$"):
        call(build, **{option: value})


# -- transactions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["session", "connection"])
@pytest.mark.parametrize("given", [object(), "postgresql:///", 0], ids=["object", "URL", "0"])
def test_what_has_no_transaction_to_join_is_refused(
    build: Task[..., Any], call: Callable[..., Any], option: str, given: object
) -> None:
    with pytest.raises(BadArguments, match=f"^build: {option}=.*: give a session or connection of SQLAlchemy"):
        call(build, **{option: given})


# -- many --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [1, None, "ab", b"ab", {1}, object()], ids=["1", "None", "text", "bytes", "set", "object"]
)
def test_a_call_of_a_bulk_that_has_no_arguments_to_give_is_refused_by_its_place(
    build: Task[..., Any], bad: object
) -> None:
    calls: list[Any] = [(1,), bad]
    with pytest.raises(BadArguments, match=r"^build: call 1 is .*: give a tuple of .*; nothing was enqueued$"):
        build.bulk(calls)


def test_what_has_no_calls_in_it_is_refused(build: Task[..., Any]) -> None:
    none: Any = 1
    with pytest.raises(BadArguments, match=r"^build: 1 has no calls in it: give .*; nothing was enqueued$"):
        build.bulk(none)


@pytest.mark.parametrize("given", ["ab", {1}, b"x", {"a": 1}, range(2)])
def test_arguments_are_a_list_or_a_tuple_as_for_celery(build: Task[..., Any], given: Any) -> None:
    for options in ({}, {"priority": 1}):
        with pytest.raises(TypeError, match="task args must be a list or tuple"):
            build.apply_async(given, **options)


@pytest.mark.parametrize("given", ["ab", [("store_id", 1)]])
def test_arguments_by_name_are_a_mapping_as_for_celery(build: Task[..., Any], given: Any) -> None:
    for options in ({}, {"priority": 1}):
        with pytest.raises(TypeError, match="task keyword arguments must be a mapping"):
            build.apply_async((), given, **options)
