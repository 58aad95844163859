"""What a handler asks for and Postgres would refuse is that attempt's error, and nobody else's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac
from celeriac.roles.role import Role
from celeriac.run import shared
from celeriac.run.execute import execute
from celeriac.run.run import Run
from celeriac.run.ticket import TicketRun
from celeriac.store.connections import Database
from celeriac.store.encoding import MOST_BYTES
from tests.postgres.conftest import new_task
from tests.postgres.stages import again, outcome, running
from tests.processes import Rows


def snoozes(task: Any, seconds: Any) -> None:
    raise task.snooze(seconds)


def retries(task: Any, seconds: Any) -> None:
    raise task.retry(countdown=seconds)


@pytest.mark.parametrize("seconds", [1e300, float("inf"), float("nan")])
@pytest.mark.parametrize("asks", [snoozes, retries])
def test_a_delay_that_cannot_be_fails_the_attempt(
    app: Celeriac, database: Database, asks: Callable[[Any, Any], None], seconds: float
) -> None:
    @app.task(role="work", bind=True, shared=False)
    def work(self: Any) -> None:
        asks(self, seconds)

    (task,) = running(database, new_task(max_retries=3))
    run = Run(task, app.roles.of(app.tasks["work"]), database)
    execute(app, run)
    assert run.outcome is not None
    assert (run.outcome.status, "100 years" in str(run.outcome.error)) == ("failed", True)


def test_a_retry_at_what_is_no_time_fails_the_attempt(app: Celeriac, database: Database) -> None:
    @app.task(role="work", bind=True, shared=False)
    def work(self: Any) -> None:
        raise self.retry(eta="tomorrow")

    (task,) = running(database, new_task(max_retries=3))
    run = Run(task, app.roles.of(app.tasks["work"]), database)
    execute(app, run)
    assert run.outcome is not None
    assert (run.outcome.status, "ISO 8601" in str(run.outcome.error)) == ("failed", True)


@pytest.mark.parametrize("value", [float("nan"), "\x00", object(), "x" * (MOST_BYTES - 1)])
@pytest.mark.parametrize("left", ["result", "progress"])
def test_what_cannot_be_stored_fails_the_attempt(app: Celeriac, database: Database, left: str, value: Any) -> None:
    @app.task(role="work", bind=True, shared=False)
    def work(self: Any) -> Any:
        if left == "progress":
            self.progress(value)
        return value

    (task,) = running(database, new_task())
    run = Run(task, app.roles.of(app.tasks["work"]), database)
    execute(app, run)
    assert run.outcome is not None
    assert (run.outcome.status, "cannot be stored" in str(run.outcome.error)) == ("failed", True)


def test_an_outcome_that_postgres_refuses_leaves_those_beside_it_alone(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    runs = [Run(task, Role(name="work"), database) for task in running(database, *(new_task() for _ in range(3)))]
    for run in runs:
        run.outcome = outcome(run.task)
    runs[1].outcome = again(runs[1].task, delay=1e300)
    with pytest.raises(DBAPIError):
        app.settler.settle(runs)
    assert [run.settled for run in runs] == [True, False, True]
    assert rows("SELECT status FROM worker_tasks ORDER BY id") == [("completed",), ("running",), ("completed",)]


def test_what_was_settled_beside_a_refused_outcome_is_told(
    app: Celeriac, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[dict[str, Any]] = []
    monkeypatch.setattr(app.journal, "write", heard.append)
    monkeypatch.setattr(shared, "telling", lambda: True)
    tasks = running(database, *(new_task() for _ in range(3)))
    ticket = TicketRun(app, Role(name="work"), tasks[0].token, lambda _: tasks)
    assert ticket._start() == (3, 0)
    for task in tasks:
        run = Run(task, ticket.role, database)
        run.outcome = again(task, delay=1e300) if task is tasks[1] else outcome(task)
        ticket.finished.append(run)
    with pytest.raises(DBAPIError):
        ticket._settle()
    assert [e["uuid"] for e in heard if e["type"] == "task-succeeded"] == [tasks[0].task_id, tasks[2].task_id]
    with pytest.raises(DBAPIError):
        ticket._settle()
    assert len([e for e in heard if e["type"] == "task-succeeded"]) == 2, "each is told once"
