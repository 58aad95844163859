"""What a task's hooks do once its handler has ended counts, and what cannot count is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery.signals import task_postrun, task_success
from sqlalchemy import text

from celeriac import Celeriac, Task
from celeriac.database import Database
from celeriac.worker.ticket import Batch
from tests.postgres.stages import claimed
from tests.processes import Rows

FOLLOW_UPS = "SELECT count(*) FROM worker_tasks WHERE role = 'next'"


@pytest.fixture
def run(app: Celeriac, database: Database) -> Callable[[Task[..., Any]], None]:
    """Runs one call of the task as its worker would."""

    def run_one(task: Task[..., Any]) -> None:
        task.delay()
        Batch(app, task.role).run(*claimed(database, task.name))

    return run_one


@pytest.fixture
def follow_up(app: Celeriac) -> Task[..., Any]:
    @app.task(role="next", shared=False)
    def next_one() -> None: ...

    return next_one


@pytest.fixture(params=[task_postrun, task_success])
def signal(request: pytest.FixtureRequest, follow_up: Task[..., Any]) -> Iterator[None]:
    """At that signal of the task "work", the follow-up is enqueued."""

    def enqueue(sender: Any = None, **_: Any) -> None:
        if sender.name == "work":
            follow_up.delay()

    request.param.connect(enqueue)
    yield
    request.param.disconnect(enqueue)


def declared(app: Celeriac, base: type[Any] | None, writes: bool) -> Task[..., Any]:
    @app.task(role="work", bind=True, shared=False, base=base)
    def work(self: Any) -> None:
        if writes:
            self.session.execute(text("SELECT 1"))

    return work


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("hook", ["on_success", "after_return"])
def test_what_a_hook_enqueues_comes(
    app: Celeriac, follow_up: Task[..., Any], run: Callable[..., None], rows: Rows, hook: str, writes: bool
) -> None:
    hooked = type("Hooked", (app.Task,), {hook: lambda *_: follow_up.delay()})
    run(declared(app, hooked, writes))
    assert rows.one(FOLLOW_UPS) == 1


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.usefixtures("signal")
def test_what_a_signal_of_success_enqueues_comes(
    app: Celeriac, run: Callable[..., None], rows: Rows, writes: bool
) -> None:
    run(declared(app, None, writes))
    assert rows.one(FOLLOW_UPS) == 1
