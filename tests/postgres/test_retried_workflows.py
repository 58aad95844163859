"""Workflows of which a part that failed is retried by hand: they go on to their end."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain, chord, group

from celeriac import Celeriac
from celeriac.errors import IllegalMove
from celeriac.operate import steer
from celeriac.store.connections import Database
from tests.postgres.test_workflow_faults import ID, steered
from tests.postgres.workflows import declare, look_once, run_all
from tests.processes import Rows

pytestmark = pytest.mark.usefixtures("current")


class Perhaps:
    """A role of that name, whose task fails for as long as it `fails`, and then returns its argument."""

    def __init__(self, app: Celeriac) -> None:
        self.fails = True

        @app.task(role="perhaps", shared=False, prompt=False, chunk=500, max_rounds=1)
        def perhaps(n: int) -> int:
            if self.fails:
                raise ValueError("on purpose")
            return n

        self.task = perhaps
        app.register_roles()


def test_a_body_that_is_retried_waits_for_the_members_that_are(app: Celeriac, database: Database, rows: Rows) -> None:
    tasks = declare(app, keep="forever")
    perhaps = Perhaps(app)
    result = chord([tasks["add"].s(1, 1), perhaps.task.s(5)], tasks["total"].s())()
    run_all(app)
    body, member = rows.one(ID, role="total", status="failed"), rows.one(ID, role="perhaps", status="failed")
    perhaps.fails = False
    steered(database, steer.retry, body, member)
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE waits_for = 'members'") == 1
    run_all(app)
    assert result.get(timeout=1, disable_sync_subtasks=False) == 7
    assert tasks["ran"][-1] == ("total", 2, 5)
    rows("UPDATE worker_tasks SET status = 'pending' WHERE id = :id", id=body)
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE waits_for = 'members'") == 1


def test_a_link_that_is_retried_and_succeeds_goes_on_to_the_end_of_its_chain(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    tasks = declare(app, keep="forever")
    perhaps = Perhaps(app)
    result = chain(tasks["add"].s(1, 1), perhaps.task.s(), tasks["add"].s(10), tasks["add"].s(100))()
    run_all(app)
    assert rows("SELECT count(*) FROM worker_tasks WHERE status = 'failed'") == [(3,)]
    link = rows.one(ID + " LIMIT 1", role="add", status="failed")
    with pytest.raises(IllegalMove, match="it never came"):
        steered(database, steer.retry, link).one()
    perhaps.fails = False
    steered(database, steer.retry, rows.one(ID, role="perhaps", status="failed"))
    run_all(app)
    assert result.get(timeout=1, disable_sync_subtasks=False) == 112
    assert tasks["ran"] == [("add", 1, 1), ("add", 2, 10), ("add", 12, 100)]


@pytest.mark.parametrize("shape", ["member", "link"])
def test_a_link_before_a_group_that_is_retried_goes_on_to_the_end(
    app: Celeriac, database: Database, rows: Rows, shape: str
) -> None:
    """What failed in the group's name was its tasks: nothing is left of it once they have come."""
    tasks = declare(app, keep="forever")
    perhaps = Perhaps(app)

    @app.task(role="same", shared=False, prompt=False, chunk=500, max_rounds=1, keep="forever")
    def same(results: list[Any]) -> list[Any]:
        return results

    app.register_roles()
    pair = group(tasks["add"].s(1), tasks["add"].s(2))
    result = {
        "member": lambda: chord([chain(perhaps.task.s(3), pair), tasks["add"].s(0, 1)], same.s()),
        "link": lambda: chain(perhaps.task.s(3), pair, same.s()),
    }[shape]().apply_async()
    run_all(app, lambda: look_once(app))
    assert result.state == "FAILURE"
    assert {role for (role,) in rows("SELECT role FROM worker_tasks")} == {"perhaps", "add", "same"}
    perhaps.fails = False
    steered(database, steer.retry, rows.one(ID, role="perhaps", status="failed"))
    run_all(app, lambda: look_once(app))
    for (body,) in rows(ID, role="same", status="failed"):
        steered(database, steer.retry, body)
    run_all(app, lambda: look_once(app))
    got = app.AsyncResult(result.id).get(timeout=1, disable_sync_subtasks=False)
    assert got == {"member": [[4, 5], 1], "link": [4, 5]}[shape]
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("completed",)]
