"""Time limits: from when they count, and whom the parent stops."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Task, signals
from celery.exceptions import TimeLimitExceeded

from celeriac import Celeriac
from celeriac.roles.role import Role
from celeriac.run import lease, shared
from celeriac.run.run import Run
from celeriac.settle.outcome import Outcome
from celeriac.store.connections import Database
from celeriac.worker import overdue
from celeriac.worker.lifeline import Lifeline
from tests.postgres.conftest import new_task
from tests.postgres.stages import limit, running
from tests.processes import Rows

STATUS = "SELECT status FROM worker_tasks ORDER BY id"


def test_a_task_has_its_time_limit_from_when_it_begins_its_own_before_its_roles(database: Database) -> None:
    own, roles = running(database, new_task(timeout=60.0), new_task())
    limited, unlimited = Role(name="work", timeout=30.0, hard_timeout=40.0), Role(name="work", timeout=None)
    before = Run(own, limited, database), Run(roles, limited, database), Run(roles, unlimited, database)
    assert [run.left and round(run.left) for run in before] == [60, 30, None]
    assert [round(run.grace(5.0)) for run in before] == [5, 10, 5], "until its process is stopped"


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The processes that were killed, had they not been this one."""
    killed: list[int] = []
    monkeypatch.setattr(overdue, "kill", killed.append)
    yield killed
    limit(0, 0.0)


def test_what_is_past_its_deadline_and_the_grace_is_stopped_and_counts_as_timed_out(
    app: Celeriac, database: Database, rows: Rows, stopped: list[int]
) -> None:
    @app.task(role="work", shared=False, max_retries=0)
    def work() -> None: ...

    late, other = running(database, new_task(max_retries=0), new_task())
    rows("UPDATE tickets SET worker_id = :w, worker_pid = :p", w=shared.worker_id(), p=os.getpid())
    parent = Lifeline(app, SimpleNamespace(pool=None, concurrency=1))
    limit(late.id, time.monotonic() + 60)
    parent.stop_overdue()
    assert (stopped, rows(STATUS)) == ([], [("running",), ("running",)])
    assert 50 < parent.next_limit - time.monotonic() <= 60, "then it looks again"
    limit(late.id, time.monotonic())
    parent.stop_overdue()
    parent.database.dispose()
    assert stopped == [os.getpid()]
    assert rows("SELECT status, starts_with(error_message, 'TimeLimitExceeded') FROM worker_tasks ORDER BY id") == [
        ("failed", True), ("running", None)
    ]  # fmt: skip
    assert rows("SELECT ids FROM tickets") == [([other.id],)], "the lost process's rows are released as such"


def test_whoever_awaits_what_was_stopped_gets_celerys_error(
    app: Celeriac, database: Database, rows: Rows, stopped: list[int]
) -> None:
    @app.task(role="work", shared=False, soft_time_limit=30, time_limit=40)
    def work() -> None: ...

    (late,) = running(database, new_task(max_retries=0))
    rows("UPDATE tickets SET worker_id = :w, worker_pid = :p", w=shared.worker_id(), p=os.getpid())
    parent = Lifeline(app, SimpleNamespace(pool=None, concurrency=1))
    limit(late.id, time.monotonic())
    parent.stop_overdue()
    parent.database.dispose()
    with pytest.raises(TimeLimitExceeded) as raised:
        app.AsyncResult(late.task_id).get(timeout=30)
    assert raised.value.args == (40,)


@pytest.mark.parametrize(("attempts", "hears"), [(0, True), (3, False)], ids=["last attempt", "tried again"])
def test_hooks_and_the_signal_of_what_was_stopped_are_called_by_the_parent(
    app: Celeriac, database: Database, rows: Rows, stopped: list[int], attempts: int, hears: bool
) -> None:
    """As Celery does; and not by the thread that heartbeats, as a hook may take its time."""
    heard: list[tuple[str, str]] = []

    class Hooked(Task):  # type: ignore[type-arg]
        def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
            heard.append(("on_failure", repr(exc)))
            raise RuntimeError("a hook that fails")

        def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
            heard.append(("after_return", status))

    @app.task(role="work", base=Hooked, shared=False, time_limit=40)
    def work() -> None: ...

    def signalled(sender: Any, task_id: str, **_: Any) -> None:
        heard.append(("task_failure", threading.current_thread().name))

    (late,) = running(database, new_task(max_retries=attempts))
    rows("UPDATE tickets SET worker_id = :w, worker_pid = :p", w=shared.worker_id(), p=os.getpid())
    parent = Lifeline(app, SimpleNamespace(pool=None, concurrency=1))
    limit(late.id, time.monotonic())
    signals.task_failure.connect(signalled)
    try:
        parent.stop_overdue()
        for thread in threading.enumerate():
            if thread.name == "hooks":
                thread.join(20)
    finally:
        signals.task_failure.disconnect(signalled)
        parent.database.dispose()
    assert heard == hears * [
        ("on_failure", "TimeLimitExceeded(40)"), ("after_return", "FAILURE"), ("task_failure", "hooks"),
    ]  # fmt: skip


def test_what_is_stopped_is_told_once_it_is_committed_and_its_process_is_gone(
    app: Celeriac, database: Database, rows: Rows, stopped: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Redis that hangs, or telling that breaks, leaves no process running whose task has failed."""

    @app.task(role="work", shared=False)
    def work() -> None: ...

    def tell(outcome: Outcome, became: str | None) -> None:
        told.append((outcome.task.id, became, rows(STATUS), list(stopped)))
        raise RuntimeError("it cannot be told")

    told: list[Any] = []
    (late,) = running(database, new_task(max_retries=0))
    rows("UPDATE tickets SET worker_id = :w, worker_pid = :p", w=shared.worker_id(), p=os.getpid())
    parent = Lifeline(app, SimpleNamespace(pool=None, concurrency=1))
    monkeypatch.setattr(parent, "_report_stopped", tell)
    limit(late.id, time.monotonic())
    with pytest.raises(RuntimeError):
        parent.stop_overdue()
    parent.database.dispose()
    assert told == [(late.id, "failed", [("failed",)], [os.getpid()])]


@pytest.mark.parametrize("meanwhile", ["another task", "none under a limit", "another run of it"])
def test_who_has_ended_its_task_in_time_is_not_stopped(
    app: Celeriac, database: Database, rows: Rows, stopped: list[int], meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent read the limit, and the child got on before the parent had its task's row."""

    @app.task(role="work", shared=False)
    def work() -> None: ...

    first, second = running(database, new_task(), new_task())
    rows("UPDATE tickets SET worker_id = :w, worker_pid = :p", w=shared.worker_id(), p=os.getpid())
    parent = Lifeline(app, SimpleNamespace(pool=None, concurrency=1))
    limit(first.id, time.monotonic())
    real = lease.running

    def read(*given: Any) -> Any:
        limit(*{
            "another task": (second.id, time.monotonic()),
            "none under a limit": (0, 0.0),
            "another run of it": (first.id, time.monotonic() + 60),
        }[meanwhile])  # fmt: skip
        return real(*given)

    monkeypatch.setattr(lease, "running", read)
    parent.stop_overdue()
    parent.database.dispose()
    assert (stopped, rows(STATUS)) == ([], [("running",), ("running",)])
