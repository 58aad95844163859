"""What a message comes to in a child process, also where something breaks in between: no task stays with nobody."""

from __future__ import annotations

from typing import Any

import pytest

from celeriac import Celeriac
from celeriac.run.arrive import run_ticket
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import claimed, enqueued
from tests.processes import Rows

STATUS = "SELECT status FROM worker_tasks ORDER BY status"


def declare(app: Celeriac, **options: Any) -> list[str]:
    """The task ids that a role `work` has run."""
    ran: list[str] = []

    @app.task(role="work", shared=False, bind=True, **({"prompt": False, "chunk": 1} | options))
    def work(self: Any) -> None:
        ran.append(self.request.id)

    app.register_roles()
    return ran


def test_a_pass_whose_other_tickets_went_nowhere_runs_its_own(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.publisher, "publish", lambda _: False)
    ran = declare(app)
    enqueued(database, *(new_task() for _ in range(3)))
    rows("ALTER FUNCTION celeriac.release RENAME TO gone")
    assert run_ticket(app, "work", [], "") == {"ran": 1}
    assert len(ran) == 1
    assert rows(STATUS) == [("claimed",), ("claimed",), ("completed",)]


def test_a_pass_that_breaks_off_after_its_commit_leaves_nothing_running(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(app)
    enqueued(database, *(new_task() for _ in range(3)))
    monkeypatch.setattr(app.publisher, "publish", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_ticket(app, "work", [], "")
    assert rows(STATUS) == [("claimed",), ("claimed",), ("pending",)]


def test_a_lone_task_that_has_expired_is_cancelled_and_not_asked_for_again(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    ran = declare(app)
    (expired,) = enqueued(database, new_task(expires_in=-1.0))
    assert run_ticket(app, "work", [expired.id], "") == {"ran": 0}
    assert (ran, rows(STATUS)) == ([], [("cancelled",)])


def test_what_is_settled_stays_so_if_the_look_afterwards_fails(app: Celeriac, database: Database, rows: Rows) -> None:
    ran = declare(app, chunk="auto")
    enqueued(database, new_task())
    ticket = claimed(database)
    rows("ALTER TABLE celeriac.batchers RENAME TO gone")
    assert run_ticket(app, "work", *ticket) == {"ran": 1}
    assert (len(ran), rows(STATUS)) == (1, [("completed",)])
