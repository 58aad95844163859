"""What a handler has left behind enqueues while its outcome is written: no accepted call is lost."""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context
from typing import Any

import pytest
from sqlalchemy import event, text

from celeriac import Celeriac, Task
from celeriac.settle.write import settle as write
from tests.postgres.test_flights import flying
from tests.postgres.workflows import run_all, run_once
from tests.processes import Rows, until

THERE = "SELECT count(*) FROM worker_tasks WHERE role = 'after'"


@pytest.fixture
def after(app: Celeriac) -> Task[[int], None]:
    @app.task(role="after", shared=False)
    def after(n: int) -> None: ...

    return after


class Meanwhile:
    """Calls a function in the context of a handler that has ended, before its outcome is sent or once it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, act: Any, *, late: bool) -> None:
        self.context: Context | None = None
        self.act = act

        def settle(*args: Any, **options: Any) -> Any:
            if late:
                done = write(*args, **options)
                self._once()
                return done
            self._once()
            return write(*args, **options)

        monkeypatch.setattr("celeriac.run.settler.settle", settle)

    def _once(self) -> None:
        context, self.context = self.context, None
        if context is not None:
            context.run(self.act)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("on_loop", [False, True])
def test_what_is_enqueued_while_the_outcome_is_written_is_there(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch, after: Task[[int], None], on_loop: bool, late: bool
) -> None:
    meanwhile = Meanwhile(monkeypatch, lambda: after.delay(7), late=late)

    @app.task(role="work", shared=False)
    async def work() -> None:
        meanwhile.context = copy_context()

    app.register_roles()
    work.delay()
    with flying(app, on_loop=on_loop):
        until(lambda: rows.one("SELECT count(*) FROM history") == 1, "it to end")
    assert rows.one(THERE) == 1


def test_an_asyncio_task_left_behind_loses_no_call(app: Celeriac, rows: Rows, after: Task[[int], None]) -> None:
    accepted: set[str] = set()
    left: list[asyncio.Task[None]] = []

    async def goes_on() -> None:
        while not rows.one("SELECT count(*) FROM history"):
            accepted.add(after.delay(len(accepted)).id)
            await asyncio.sleep(0)

    @app.task(role="work", shared=False)
    async def work() -> None:
        left.append(asyncio.create_task(goes_on()))
        await asyncio.sleep(0)

    app.register_roles()
    work.delay()
    with flying(app):
        until(lambda: bool(left) and left[0].done(), "it to end")
    assert accepted <= {task_id for (task_id,) in rows("SELECT task_id FROM worker_tasks")}


def test_what_is_enqueued_at_the_commit_of_what_it_wrote_is_there(
    app: Celeriac, rows: Rows, after: Task[[int], None]
) -> None:
    """As applications do that enqueue once their session has committed."""

    @app.task(role="work", shared=False, bind=True, prompt=False, chunk=500)
    def work(self: Any) -> None:
        event.listen(self.session, "after_commit", lambda _: after.delay(7))
        self.session.execute(text("SELECT 1"))

    app.register_roles()
    work.delay()
    run_once(app)
    assert rows.one(THERE) == 1
    run_all(app)
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("completed",)]
