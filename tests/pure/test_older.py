"""On Celery 5.6 what follows a task is published as Celery 5.7 publishes it."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, group
from celery.app import trace

from celeriac import Celeriac
from celeriac.seam import older


def tracer(seen: list[str]) -> Any:
    """A tracer as Celery 5.6 builds them, wrapped as Sentry wraps it."""

    def _dispatch_callbacks_and_chain(*_: Any) -> None:
        seen.append("Celery's own")

    def trace_task(*sent: Any) -> Any:
        if not sent:
            return trace_task
        return _dispatch_callbacks_and_chain(*sent)

    def wrapped(*sent: Any) -> Any:
        return trace_task(*sent)

    return wrapped


class Traced:
    __trace__ = older.Tracer()
    name = "traced"

    def __init__(self, app: Any) -> None:
        self.app = app


@pytest.fixture
def published() -> list[tuple[Any, ...]]:
    return []


@pytest.fixture
def app(published: list[tuple[Any, ...]]) -> Any:
    def publish(send: Any, *args: Any, **sent: Any) -> None:
        published.append((send.__self__.task, args, sent.pop("chain", None)))
        assert sent == {"parent_id": "p", "root_id": "r", "priority": 3}

    made = Celery("older", set_as_current=False)
    made.amqp = SimpleNamespace(_retry_publish=publish)
    return made


def test_each_callback_goes_through_amqp_and_then_the_chain(app: Any, published: list[tuple[Any, ...]]) -> None:
    seen: list[str] = []
    task = Traced(app)
    assert task.__trace__ is None
    task.__trace__ = tracer(seen)
    one, two, three = (app.signature(name) for name in "abc")
    task.__trace__(7, [group([one, two], app=app)], None, "p", "r", 3)
    task.__trace__(7, [one], None, "p", "r", 3)
    task.__trace__(7, [one, two], [three, two], "p", "r", 3)
    task.__trace__(7, None, None, "p", "r", 3)
    assert published == [
        ("celery.group", ((7,),), None), ("a", ((7,),), None), ("celery.group", ((7,),), None), ("b", ((7,),), [three]),
    ]  # fmt: skip
    assert seen == []


def wrapped_by(how: str, inner: Any) -> Any:
    """A tracer around another, as functools makes them, or by a class."""

    spare = None

    class Around:
        def run(self, *sent: Any) -> Any:
            return inner(*sent)

    @functools.wraps(inner)
    def decorated(*sent: Any) -> Any:
        return decorated.__wrapped__(*sent)  # type: ignore[attr-defined]

    def with_an_empty_cell(*sent: Any) -> Any:
        return inner(*sent) if sent else spare

    closure = with_an_empty_cell.__closure__
    assert closure is not None
    del closure[with_an_empty_cell.__code__.co_freevars.index("spare")].cell_contents
    return {
        "partial": functools.partial(inner), "method": Around().run, "wraps": decorated,
        "an empty cell": with_an_empty_cell,
    }[how]  # fmt: skip


@pytest.mark.parametrize("how", ["partial", "method", "wraps", "an empty cell"])
def test_a_tracer_is_found_however_it_is_wrapped(app: Any, published: list[tuple[Any, ...]], how: str) -> None:
    seen: list[str] = []
    task = Traced(app)
    task.__trace__ = wrapped_by(how, tracer(seen))
    task.__trace__(7, [app.signature("a")], None, "p", "r", 3)
    assert (published, seen) == ([("a", ((7,),), None)], [])


def test_a_tracer_without_that_function_is_logged(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    task = Traced(app)
    task.__trace__ = len
    assert task.__trace__ is len
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("traced: what follows it is published by Celery itself")


def test_the_installed_celerys_tracer_has_that_function() -> None:
    """Without it a link that is refused would fail the task before it."""
    app = Celeriac("older", set_as_current=False)

    @app.task(name="older.nothing", shared=False)
    def nothing() -> None: ...

    (cell,) = older.publishers(trace.build_tracer(nothing.name, nothing, app=app))
    assert cell.cell_contents.__module__ == trace.__name__
