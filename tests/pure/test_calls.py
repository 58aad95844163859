"""What a call says beside its arguments and no row can honour is refused with what to say instead: never lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from celery.canvas import Signature

from celeriac import Celeriac, Settings, Task
from celeriac.errors import BadArguments


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


@pytest.mark.parametrize("option", ["task_id", "delay", "at", "expires_in", "parent_id", "headers", "queue"])
def test_a_bulk_takes_only_what_may_be_the_same_for_all(build: Task[..., Any], option: str) -> None:
    given: dict[str, Any] = {option: "1"}
    with pytest.raises(BadArguments, match=f"no option '{option}'.*; nothing was enqueued"):
        build.bulk([(1,)], **given)


@pytest.mark.parametrize("limit", ["time_limit", "soft_time_limit"])
@pytest.mark.parametrize("call", SINGLE.values(), ids=SINGLE)
def test_a_time_limit_that_is_none_is_refused(build: Task[..., Any], call: Callable[..., Any], limit: str) -> None:
    with pytest.raises(BadArguments, match="timeout='5': give seconds above 0"):
        call(build, **{limit: "5"})
