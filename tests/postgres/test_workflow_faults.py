"""Workflows of which a part was refused, retried, buried or cut off: each still comes to an end, and only once."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import ChordError
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from celeriac import Celeriac
from celeriac.operate import steer
from celeriac.store.connections import Database
from tests.postgres.workflows import declare, run_all
from tests.processes import Rows

pytestmark = pytest.mark.usefixtures("current")

OPEN = "SELECT count(*) FROM worker_tasks WHERE completed_at IS NULL"
ID = "SELECT id FROM worker_tasks WHERE role = :role AND status = :status"


@pytest.fixture
def tasks(app: Celeriac) -> dict[str, Any]:
    return declare(app, keep="forever")


def steered(database: Database, move: Any, *ids: int) -> steer.Steered:
    with database.transaction() as connection:
        done: steer.Steered = move(connection, ids, by="op")
        return done


# -- errbacks --------------------------------------------------------------------------------------------------------


def test_an_errback_that_is_refused_holds_nobody_up(
    app: Celeriac, tasks: Any, database: Database, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither where the task failed in its worker nor where somebody tells in its name; the others are called."""
    errbacks = [app.signature("nobody", immutable=True), tasks["told"].s()]
    failed = tasks["fail"].apply_async(link_error=errbacks)
    lost = tasks["add"].apply_async((1, 1), link_error=errbacks, max_retries=0)
    rows("UPDATE worker_tasks SET status = 'failed', error_message = 'by hand' WHERE task_id = :id", id=lost.id)
    tasks["add"].delay(2, 2)
    run_all(app)
    assert ("told", failed.id) in tasks["ran"]
    assert ("told", lost.id) in tasks["ran"]
    assert ("add", 2, 2) in tasks["ran"]
    assert rows.one(OPEN) == 0
    assert sum("nobody" in record.getMessage() for record in caplog.records) == 2


def test_who_tells_of_an_end_and_is_cancelled_is_not_told_of(
    app: Celeriac, tasks: Any, database: Database, rows: Rows
) -> None:
    chain(tasks["add"].s(1, 1), tasks["add"].s(1))()
    for _ in range(3):
        steered(database, steer.cancel, *(i for (i,) in rows("SELECT id FROM worker_tasks WHERE completed_at IS NULL")))
    assert rows.one(OPEN) == 0


# -- what is a part, and what only comes from one ----------------------------------------------------------------------


def test_what_a_part_enqueues_by_itself_is_a_task_like_any_other(app: Celeriac, rows: Rows) -> None:
    tasks = declare(app, keep="forever")

    @app.task(role="charge", shared=False, prompt=False, chunk=500, keep="forever")
    def charge(customer: int) -> None:
        tasks["ran"].append(("charge", customer))

    @app.task(role="order", shared=False, prompt=False, chunk=500)
    def order(n: int) -> int:
        charge.apply_async((7,), task_id="charge-7")
        unique.delay(7)
        return n

    @app.task(role="unique", shared=False, prompt=False, chunk=500, unique_by="n")
    def unique(n: int) -> None:
        tasks["ran"].append(("unique", n))

    app.register_roles()
    unique.apply_async((7,), countdown=3600)
    for _ in range(2):
        result = chain(order.s(1), order.s())()
        run_all(app)
        assert result.get(timeout=1, disable_sync_subtasks=False) == 1
    assert tasks["ran"] == [("charge", 7)]
    assert rows("SELECT count(*), count(DISTINCT workflow) FROM worker_tasks WHERE role = 'charge'") == [(1, 1)]


def test_an_id_that_a_call_gave_is_one_task_whatever_is_linked_to_it(app: Celeriac, tasks: Any) -> None:
    for given in ("order-7", "3f1c7d0e-7b1f-4a77-9a46-5a2f7a2f4f11"):
        for _ in range(2):
            tasks["add"].apply_async((1, 1), task_id=given, link=tasks["add"].s(1))
            run_all(app)
    assert tasks["ran"] == [("add", 1, 1), ("add", 2, 1)] * 2


def test_a_chain_that_is_applied_again_runs_to_its_end_again(app: Celeriac, tasks: Any) -> None:
    made = chain(tasks["add"].s(1, 1), tasks["add"].s(1), tasks["add"].s(2))
    made.freeze()
    for _ in range(2):
        result = made.apply_async()
        run_all(app)
    assert result.get(timeout=1, disable_sync_subtasks=False) == 5
    assert tasks["ran"] == [("add", 1, 1), ("add", 2, 1), ("add", 3, 2)] * 2


def test_members_that_have_one_id_are_one_member(app: Celeriac, tasks: Any) -> None:
    given = [tasks["add"].s(1, 1).set(task_id="same"), tasks["add"].s(1, 1).set(task_id="same"), tasks["add"].s(2, 2)]
    result = chord(given, tasks["total"].s())()
    run_all(app)
    assert result.get(timeout=1, follow_parents=False, disable_sync_subtasks=False) == 6
    assert sorted(tasks["ran"]) == [("add", 1, 1), ("add", 2, 2), ("total", 2, 4)]


@pytest.mark.parametrize("shape", ["group", "chord", "chain of groups"])
def test_all_parts_of_a_workflow_have_one_label(app: Celeriac, tasks: Any, rows: Rows, shape: str) -> None:
    add, total = tasks["add"], tasks["total"]
    pair = group(add.s(1, 1), chain(add.s(2, 2), add.s(1)))
    {"group": pair, "chord": chord(pair, total.s()), "chain of groups": chain(add.s(0, 0), pair, total.s())}[shape]()
    run_all(app)
    labels = rows("SELECT DISTINCT workflow FROM worker_tasks")
    assert len(labels) == 1
    assert labels[0][0] is not None


def test_only_what_failed_behind_a_task_is_buried_in_its_name(app: Celeriac, tasks: Any, rows: Rows) -> None:
    @app.task(role="says", bind=True, shared=False, prompt=False, chunk=500)
    def says(self: Any) -> None:
        self.update_state(task_id="another", state="FAILURE", meta={"exc_type": "ValueError", "exc_message": "x"})
        tasks["fail"].apply()

    app.register_roles()
    says.delay()
    run_all(app)
    assert rows("SELECT role, status FROM worker_tasks WHERE status = 'failed'") == []


def test_a_body_never_runs_on_some_of_the_results(app: Celeriac, tasks: Any, database: Database, rows: Rows) -> None:
    result = chord([tasks["add"].s(1, 1), chain(tasks["add"].s(2, 2), tasks["add"].s(2))], tasks["total"].s())()
    run_all(app, lambda: rows("DELETE FROM celeriac.history WHERE role = 'add' AND result = '2'"))
    with pytest.raises(ChordError, match="the results of 1 of 2 members are not there any more"):
        result.get(timeout=1, follow_parents=False, disable_sync_subtasks=False)
    assert not [done for done in tasks["ran"] if done[0] == "total"]


def test_behind_a_part_whose_unique_key_is_taken_its_chain_ends(app: Celeriac, rows: Rows) -> None:
    tasks = declare(app, keep="forever")

    @app.task(role="once", shared=False, prompt=False, chunk=500, unique_by="n")
    def once(n: int) -> int:
        return n

    app.register_roles()
    once.apply_async((2,), countdown=3600)
    result = chord(
        [chain(tasks["add"].s(1, 1), once.s(), tasks["add"].s(1)), tasks["add"].s(3, 3)], tasks["total"].s()
    )()
    run_all(app)
    with pytest.raises(ChordError, match="unique key"):
        result.get(timeout=1, follow_parents=False, disable_sync_subtasks=False)
    assert rows.one(OPEN) == 1


@pytest.mark.parametrize("key", ["numbers", "x{numbers}", lambda a: a.get("numbers"), lambda a: a["numbers"]])
def test_no_key_is_made_of_results_that_are_still_to_come(app: Celeriac, rows: Rows, key: Any) -> None:
    tasks = declare(app, keep="forever")

    @app.task(role="sum", shared=False, prompt=False, chunk=500, unique_by=key, lock_by=key, fair_by=key)
    def add_up(numbers: list[int]) -> int:
        return sum(numbers)

    app.register_roles()
    results = [chord([tasks["add"].s(i, 1), tasks["add"].s(i, 1)], add_up.s())() for i in range(2)]
    assert rows("SELECT unique_key, lock_key, account FROM worker_tasks WHERE role = 'sum'") == [(None, None, "")] * 2
    run_all(app)
    assert [result.get(timeout=1, disable_sync_subtasks=False) for result in results] == [2, 4]


# -- what surrounds it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [Session, Connection])
@pytest.mark.parametrize("shape", ["chord", "chain", "chain of groups", "body of a chain"])
def test_every_workflow_comes_with_its_callers_commit(
    app: Celeriac, tasks: Any, rows: Rows, shape: str, by: type
) -> None:
    add, total = tasks["add"], tasks["total"]
    pair = group(add.s(1, 1), add.s(2, 2))
    made = {
        "chord": chord(pair, total.s()),
        "chain": chain(add.s(1, 1), group(add.s(1), add.s(2))),
        "chain of groups": chain(pair, total.s()),
        "body of a chain": chord(pair, chain(total.s(), add.s(1))),
    }[shape]
    with app.database.engine.connect() as connection, Session(app.database.engine) as session:
        bound, option = (session, "session") if by is Session else (connection, "connection")
        made.apply_async(**{option: bound})
        assert rows.one(OPEN) == 0
        bound.rollback()
        assert rows.one(OPEN) == 0
        result = made.apply_async(**{option: bound})
        bound.commit()
    run_all(app)
    assert result.get(timeout=1, disable_sync_subtasks=False) in (6, 7, [3, 4])


def test_every_part_behind_a_failed_link_has_failed(app: Celeriac, tasks: Any, rows: Rows) -> None:
    add, total = tasks["add"], tasks["total"]
    later = chord([add.s(1), chain(add.s(2), add.s(3))], total.s())
    result = chain(tasks["fail"].s(), add.s(1), later)()
    run_all(app)
    assert result.state == "FAILURE"
    assert [member.state for member in result.parent.results] == ["FAILURE"] * 2


def test_a_task_that_somebody_fails_in_sql_ends_its_chain(app: Celeriac, tasks: Any, rows: Rows) -> None:
    result = chain(tasks["add"].s(1, 1), tasks["add"].s(1))()
    rows("UPDATE worker_tasks SET status = 'failed', error_message = 'by hand'")
    run_all(app)
    assert result.state == "FAILURE"
    assert rows.one(OPEN) == 0
