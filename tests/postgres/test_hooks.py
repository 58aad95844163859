"""What a task's hooks do once its handler has ended counts, and what cannot count is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery.exceptions import Ignore
from celery.signals import task_postrun, task_success
from sqlalchemy import text

from celeriac import Celeriac, Task
from celeriac.errors import CeleriacError
from celeriac.run.arrive import run_ticket
from celeriac.store.connections import Database
from tests.postgres.stages import claimed
from tests.processes import Rows

FOLLOW_UPS = "SELECT count(*) FROM worker_tasks WHERE role = 'next'"


@pytest.fixture
def run(app: Celeriac, database: Database) -> Callable[[Task[..., Any]], None]:
    """Runs one call of the task as its worker would."""

    def run_one(task: Task[..., Any]) -> None:
        task.delay()
        run_ticket(app, task.name, *claimed(database, task.name))

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


# -- the handler's session ---------------------------------------------------------------------------------------------

ENDS = {"on_success": "completed", "on_failure": "failed", "on_retry": "pending"}
STATUS = "SELECT status, retry_count FROM worker_tasks"
IDLE = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"


def ends_so_that(app: Celeriac, hook: str, called: Callable[..., object]) -> Task[..., Any]:
    """A task whose handler ends with this hook."""

    @app.task(role="work", bind=True, shared=False, max_retries=1, base=type("Hooked", (app.Task,), {hook: called}))
    def work(self: Any) -> None:
        self.session.execute(text("CREATE TABLE notes ()"))
        if hook == "on_retry":
            raise self.retry(countdown=1000, exc=ValueError())
        if hook == "on_failure":
            raise ValueError

    return work


@pytest.mark.parametrize("hook", ENDS)
def test_a_hook_is_told_that_the_session_has_ended(
    app: Celeriac, run: Callable[..., None], rows: Rows, hook: str
) -> None:
    told = []

    def write(self: Any, *_: Any) -> None:
        with pytest.raises(CeleriacError, match="the handler, which has ended") as refused:
            self.session.execute(text("CREATE TABLE others ()"))
        told.append(refused)

    run(ends_so_that(app, hook, write))
    assert len(told) == 1
    assert rows(STATUS) == [(ENDS[hook], int(hook == "on_retry"))]


@pytest.mark.parametrize("hook", ENDS)
@pytest.mark.filterwarnings("ignore:Exception raised outside body")
def test_an_error_of_a_hook_changes_nothing_of_what_the_attempt_came_to(
    app: Celeriac, run: Callable[..., None], rows: Rows, hook: str
) -> None:
    def fails(*_: Any) -> None:
        raise ZeroDivisionError("the hook's")

    run(ends_so_that(app, hook, fails))
    assert rows(STATUS) == [(ENDS[hook], int(hook == "on_retry"))]
    assert "the hook's" not in str(rows("SELECT error_message FROM worker_tasks"))


def test_a_session_that_a_signal_opens_ends_with_the_run(app: Celeriac, run: Callable[..., None], rows: Rows) -> None:
    @app.task(role="work", bind=True, shared=False)
    def work(self: Any) -> None:
        raise Ignore

    def write(sender: Any = None, **_: Any) -> None:
        sender.session.execute(text("SELECT 1"))
        assert len(rows(IDLE)) == 1

    task_postrun.connect(write)
    run(work)
    task_postrun.disconnect(write)
    assert rows(IDLE) == []


def test_telling_of_a_state_ends_neither_the_attempt_nor_its_session(
    app: Celeriac, run: Callable[..., None], follow_up: Task[..., Any], rows: Rows
) -> None:
    @app.task(role="work", bind=True, shared=False)
    def work(self: Any) -> None:
        self.session.execute(text("CREATE TABLE notes ()"))
        follow_up.delay()
        self.update_state(state="HALFWAY", meta={"done": 1})

    run(work)
    assert rows("SELECT status FROM worker_tasks WHERE role = 'work'") == [("completed",)]
    assert rows.one(FOLLOW_UPS) == 1
    assert rows("SELECT FROM notes") == []
