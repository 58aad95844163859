"""A workflow that is cancelled as a whole: all that is open of it ends, whatever runs or comes meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from celery import chain, group
from sqlalchemy.orm import Session

from celeriac import Celeriac
from celeriac.operate import steer, workflows
from celeriac.run.arrive import run_ticket
from celeriac.run.settler import Settler
from celeriac.store.connections import Database
from tests.postgres.test_whole_workflows import LABEL, whole
from tests.postgres.workflows import run_all, run_once
from tests.processes import Rows, until

pytestmark = pytest.mark.usefixtures("current")


def cancelled(database: Database, label: str) -> int:
    return sum(len(some.changed) for some in workflows.cancel(database, label, by="op", why="sold"))


def test_a_cancel_ends_all_that_is_open_whatever_runs_meanwhile(
    app: Celeriac, tasks: Any, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body goes first: it would begin, and fail, once its last member is gone."""
    add, told = tasks["add"], tasks["told"]
    members = group(add.s(1, 1), add.s(2, 2))
    result = chain(told.si("first"), members, tasks["total"].s().on_error(told.s()), add.s(1))()
    run_once(app)
    label = rows.one(LABEL)
    other = chain(add.s(3, 3), add.s(1))()
    monkeypatch.setattr(steer, "BATCH", 1)
    changed = 0
    for some in workflows.cancel(database, label, by="op", why="sold"):
        changed += len(some.changed)
        run_ticket(app, "total", [], "")
    assert changed == 3
    assert cancelled(database, label) == 0, "said again, it changes nothing"
    assert whole(database, label).state == "cancelled", "what still has to be told is no part"
    run_all(app)
    assert rows("SELECT role, status FROM worker_tasks WHERE workflow = :w ORDER BY role, status", w=label) == [
        ("add", "cancelled"), ("add", "cancelled"), ("add", "failed"), ("told", "completed"), ("total", "cancelled"),
    ]  # fmt: skip
    assert tasks["ran"] == [("told", "first"), ("add", 3, 3), ("add", 6, 1)]
    assert (whole(database, result.id).state, whole(database, other.id).state) == ("cancelled", "completed")
    assert rows("SELECT DISTINCT action, why FROM celeriac.audit") == [("cancel", "sold")]


def test_a_part_that_was_cancelled_and_ends_all_the_same_has_no_link(
    app: Celeriac, tasks: Any, database: Database, rows: Rows
) -> None:
    result = chain(tasks["add"].s(1, 1), tasks["add"].s(1), tasks["add"].s(1))()
    label = rows.one(LABEL)

    @app.task(role="late", prompt=False, chunk=500, shared=False)
    def late() -> None:
        assert cancelled(database, label) == 1

    app.register_roles()
    chain(late.si(), tasks["told"].si("never"))()
    label = rows.one("SELECT workflow FROM worker_tasks WHERE role = 'late'")
    run_all(app)
    assert rows("SELECT role, status, error_message FROM worker_tasks WHERE workflow = :w ORDER BY id", w=label) == [
        ("late", "completed", None), ("told", "cancelled", "what it follows was cancelled"),
    ]  # fmt: skip
    assert whole(database, label).state == "cancelled"
    assert result.get(timeout=1, disable_sync_subtasks=False) == 4, "another one goes on"


@pytest.fixture
def unique(app: Celeriac) -> Any:
    @app.task(role="unique", unique_by="n", prompt=False, chunk=500, shared=False)
    def unique(n: int) -> None: ...

    return unique


def test_with_a_part_only_what_it_enqueued_is_cancelled(
    app: Celeriac, tasks: Any, database: Database, rows: Rows, unique: Any
) -> None:
    """Not another's task of the same id; and what the outbox has of it is dropped."""

    @app.task(role="late", prompt=False, chunk=500, shared=False)
    def late() -> None:
        tasks["told"].apply_async(("report",), task_id="report")
        unique.delay(1)
        assert cancelled(database, rows.one("SELECT workflow FROM worker_tasks WHERE role = 'late'")) == 1

    app.register_roles()
    tasks["told"].apply_async(("report",), task_id="report", countdown=3600)
    chain(late.si(), tasks["told"].si("never"))()
    with Session(database.engine) as session:
        unique.using(session=session).delay(1)
        run_once(app)
        session.rollback()
    assert rows("SELECT task_id, status FROM worker_tasks WHERE task_id = 'report'") == [("report", "pending")]
    assert rows("SELECT status FROM worker_tasks WHERE role = 'told' ORDER BY id") == [("pending",), ("cancelled",)]
    assert rows("SELECT FROM intake") == []


def test_what_the_outbox_has_of_a_workflow_goes_with_it(
    app: Celeriac, tasks: Any, database: Database, rows: Rows, unique: Any
) -> None:
    @app.task(role="first", prompt=False, chunk=500, shared=False)
    def first() -> None:
        unique.delay(1)

    app.register_roles()
    for _ in range(2):
        chain(first.si(), tasks["told"].si("never"))()
    label, other = (label for (label,) in rows("SELECT workflow FROM worker_tasks ORDER BY id"))
    with Session(database.engine) as session:
        unique.using(session=session).delay(1)
        run_ticket(app, "first", [], "")
        session.rollback()
    assert cancelled(database, label) == 1
    assert rows("SELECT task ->> 'workflow' FROM intake") == [(other,)]


def test_a_link_that_comes_while_its_parent_is_waited_for_is_cancelled_too(
    app: Celeriac, tasks: Any, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain(tasks["add"].s(1, 1), tasks["add"].s(1))()
    label, changed = rows.one(LABEL), []
    write = Settler._write

    def waited_for(self: Settler, *given: Any, **more: Any) -> Any:
        """The outcome is written, and not yet committed, as the cancel comes to the part."""
        written = write(self, *given, **more)
        thread = threading.Thread(target=lambda: changed.append(cancelled(database, label)))
        thread.start()
        threads.append(thread)
        until(lambda: rows.one("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0, "the cancel to wait")
        return written

    threads: list[threading.Thread] = []
    monkeypatch.setattr(Settler, "_write", waited_for)
    run_once(app)
    for thread in threads:
        thread.join()
    assert changed == [1]
    assert rows("SELECT status FROM worker_tasks ORDER BY id") == [("completed",), ("cancelled",)]
