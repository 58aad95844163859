"""Eager workflows run where they are called, as Celery's do, and leave no row: in a program, and in a worker's run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import chain, chord, group
from celery.result import EagerResult

from celeriac import Celeriac
from celeriac.run import run as running
from tests.postgres.workflows import declare, run_all
from tests.processes import Rows

pytestmark = pytest.mark.usefixtures("current")


@pytest.fixture
def tasks(app: Celeriac) -> dict[str, Any]:
    return declare(app)


@pytest.fixture(params=["task_always_eager", "apply", "within a worker's run"])
def eagerly(request: pytest.FixtureRequest, app: Celeriac, rows: Rows) -> Iterator[Any]:
    """Calls a signature and returns its result; at the end no row is left but the run's own."""
    if request.param == "within a worker's run":
        yield lambda signature: _in_a_run(app, signature)
        assert rows("SELECT role, status FROM worker_tasks") == [("host", "completed")]
        return
    if request.param == "apply":
        yield lambda signature: signature.apply()
    else:
        app.conf.task_always_eager = True
        yield lambda signature: signature.apply_async()
        app.conf.task_always_eager = False
    assert rows.one("SELECT count(*) FROM worker_tasks") == 0


def _in_a_run(app: Celeriac, signature: Any) -> Any:
    made: list[Any] = []

    @app.task(role="host", max_retries=0, shared=False, prompt=False)
    def host() -> None:
        try:
            made.append(signature.apply())
        except ValueError as error:
            made.append(EagerResult("", error, "FAILURE"))
        run = running.current()
        assert run is not None
        assert not run.tombstones
        assert not run.follow_ups

    app.register_roles()
    host.delay()
    run_all(app)
    return made[0]


def test_a_chain(eagerly: Any, tasks: Any) -> None:
    add = tasks["add"]
    assert eagerly(chain(add.s(1, 2), add.s(3), add.s(4))).get(disable_sync_subtasks=False) == 10


def test_a_group(eagerly: Any, tasks: Any) -> None:
    add = tasks["add"]
    assert eagerly(group(add.s(1, 1), add.s(2, 2))).get(disable_sync_subtasks=False) == [2, 4]


def test_a_chord_with_a_chain_in_it(eagerly: Any, tasks: Any) -> None:
    add = tasks["add"]
    made = chord([add.s(1, 1), chain(add.s(2, 2), add.s(1))], tasks["total"].s())
    assert eagerly(made).get(disable_sync_subtasks=False) == 7


def test_a_link_runs_where_all_is_eager(app: Celeriac, tasks: Any, rows: Rows) -> None:
    app.conf.task_always_eager = True
    tasks["add"].s(1, 2).set(link=[tasks["add"].s(10)]).apply_async()
    assert tasks["ran"] == [("add", 1, 2), ("add", 3, 10)]
    assert rows.one("SELECT count(*) FROM worker_tasks") == 0


def test_a_link_is_enqueued_where_only_its_task_is_applied(app: Celeriac, tasks: Any) -> None:
    tasks["add"].s(1, 2).set(link=[tasks["add"].s(10)]).apply()
    assert tasks["ran"] == [("add", 1, 2)]
    run_all(app)
    assert tasks["ran"][1:] == [("add", 3, 10)]


def test_a_link_error(eagerly: Any, tasks: Any) -> None:
    failed = eagerly(tasks["fail"].s().on_error(tasks["told"].s()))
    assert isinstance(failed.result, ValueError)
    assert tasks["ran"] == [("fail",), ("told", failed.id)]


def test_a_link_error_that_gets_the_error(app: Celeriac, eagerly: Any, tasks: Any) -> None:
    @app.task(role="why", shared=False, prompt=False)
    def why(request: Any, error: Exception, traceback: Any) -> None:
        tasks["ran"].append((request.id, error.args))

    failed = eagerly(tasks["fail"].s().on_error(why.s()))
    assert tasks["ran"][1:] == [(failed.id, ("on purpose",))]


def test_a_failed_link_of_a_chain(eagerly: Any, tasks: Any) -> None:
    """Celery raises its error where the chain is applied."""
    made = chain(tasks["add"].s(1, 1), tasks["fail"].s().on_error(tasks["told"].s()), tasks["add"].s(1))
    with pytest.raises(ValueError, match="on purpose"):
        eagerly(made).get(disable_sync_subtasks=False)
    assert [done[0] for done in tasks["ran"]] == ["add", "fail", "told"]


def test_a_task_that_replaces_itself(app: Celeriac, tasks: Any, rows: Rows) -> None:
    """Within `apply`: under `task_always_eager` Celery refuses to wait for what comes in its place."""

    @app.task(role="swap", bind=True, shared=False, prompt=False)
    def swap(self: Any) -> Any:
        return self.replace(tasks["add"].s(1, 2))

    assert swap.apply().get() == 3
    result = _in_a_run(app, swap.s())
    assert result.get(disable_sync_subtasks=False) == 3
    assert rows("SELECT role, status FROM worker_tasks") == [("host", "completed")]


def test_a_retry(app: Celeriac, eagerly: Any, tasks: Any) -> None:
    @app.task(role="again", bind=True, max_retries=2, shared=False, prompt=False)
    def again(self: Any) -> int:
        if self.request.retries < 2:
            raise self.retry(countdown=0)
        return int(self.request.retries)

    assert eagerly(again.s()).get(disable_sync_subtasks=False) == 2


@pytest.mark.parametrize("propagates", [False, True])
def test_a_call_that_does_not_fit_is_a_type_error_where_it_is_made(app: Celeriac, propagates: bool) -> None:
    """Not a result that failed: by whatever call, bound or not; with `typing=False` it fails as it runs."""

    @app.task(name="bound", bind=True, shared=False)
    def bound(self: Any, x: int, *, y: int = 0) -> int:
        return x + y

    @app.task(name="loose", typing=False, shared=False)
    def loose(x: int) -> int:
        return x

    app.conf.update(task_always_eager=True, task_eager_propagates=propagates)
    try:
        for call in (bound.delay, lambda: bound.apply_async((1, 2)), bound.s(z=1).delay, bound.si().apply_async):
            with pytest.raises(TypeError):
                call()
        assert [bound.delay(1).get(), bound.apply_async((1,), {"y": 2}).get()] == [1, 3]
        if not propagates:
            assert loose.delay().state == "FAILURE"
    finally:
        app.conf.update(task_always_eager=False, task_eager_propagates=False)
