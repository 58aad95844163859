"""Celery's chains, groups and chords are rows: no step is lost, no body comes twice, none before its last member."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from sqlalchemy.orm import Session

from celeriac import Celeriac
from celeriac.errors import EnqueueRefused
from celeriac.repair import prune
from celeriac.run.arrive import run_ticket
from celeriac.settle import release
from celeriac.store.connections import Database
from tests.postgres.stages import claimed, outcome, settled, started
from tests.postgres.workflows import declare, run_all, run_once
from tests.processes import Rows

pytestmark = pytest.mark.usefixtures("current")

WAITING = "SELECT count(*) FROM worker_tasks WHERE waits_for = 'members'"
STATUS = "SELECT role, status FROM worker_tasks ORDER BY id"


def test_a_chains_links_come_one_by_one_and_its_end_has_the_result(app: Celeriac, tasks: Any, rows: Rows) -> None:
    add = tasks["add"]
    result = chain(add.s(1, 2), add.s(3), add.s(4))()
    assert rows("SELECT count(*) FROM worker_tasks") == [(1,)]
    run_all(app)
    assert result.get(timeout=1, disable_sync_subtasks=False) == 10
    assert tasks["ran"] == [("add", 1, 2), ("add", 3, 3), ("add", 6, 4)]
    assert len({workflow for (workflow,) in rows("SELECT workflow FROM worker_tasks")}) == 1
    first = result.parent.parent
    assert [child.id for child in first.children] == [result.parent.id]


def test_a_chords_body_is_a_task_from_the_beginning_and_runs_once_with_all_results(
    app: Celeriac, tasks: Any, rows: Rows
) -> None:
    result = chord([tasks["add"].s(i, i) for i in range(10)], tasks["total"].s())()
    assert rows.one(WAITING) == 1
    run_all(app)
    assert result.get(timeout=1, disable_sync_subtasks=False) == 90
    assert tasks["ran"][-1] == ("total", *range(0, 20, 2))
    assert len(tasks["ran"]) == 11


def test_a_chord_takes_what_celerys_takes_by_place(app: Celeriac, tasks: Any, rows: Rows) -> None:
    result = chord([tasks["add"].s(1, 1)], tasks["total"].s()).apply_async((), {}, "a-total", None)
    assert result.id == rows.one("SELECT task_id FROM worker_tasks WHERE role = 'total'") == "a-total"
    stock = Celery(set_as_current=False)
    stock.conf.task_always_eager = True

    @stock.task(shared=False)
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    assert chord([total.s([1, 2])], total.s()).apply_async((), {}, "another", None).get() == 3


def test_nested_workflows_hold_back_what_they_deliver_to(app: Celeriac, tasks: Any, rows: Rows) -> None:
    add, total = tasks["add"], tasks["total"]
    inner = chord([add.s(1, 1), chain(add.s(2, 2), add.s(2))], total.s())
    result = chord([inner, chain(add.s(10, 0), add.s(0), add.s(0))], total.s())()
    assert rows.one(WAITING) == 2
    run_all(app)
    assert result.get(timeout=1, disable_sync_subtasks=False) == 18
    assert sorted(tasks["ran"])[-2:] == [("total", 2, 6), ("total", 8, 10)]


def test_a_body_may_be_a_workflow_itself(app: Celeriac, tasks: Any, rows: Rows) -> None:
    add, total = tasks["add"], tasks["total"]
    result = chord([add.s(1, 1), add.s(2, 2)], chain(total.s(), add.s(10), group(add.s(1), add.s(2))))()
    run_all(app)
    assert result.get(timeout=1, disable_sync_subtasks=False) == [17, 18]
    assert rows.one("SELECT count(*) FROM celeriac.barriers") == 0


def test_an_empty_header_runs_the_body_at_once(app: Celeriac, tasks: Any) -> None:
    result = chord([], tasks["total"].s())()
    run_all(app)
    assert result.get(timeout=1, disable_sync_subtasks=False) == 0


def test_of_two_last_members_one_lets_the_body_through(
    app: Celeriac, tasks: Any, database: Database, rows: Rows
) -> None:
    """Each settles before the other has looked, in transactions of their own: only the looks after them decide."""
    chord([tasks["add"].s(1, 1), tasks["add"].s(2, 2)], tasks["total"].s())()
    one, other = (started(database, *claimed(database, "add"), role="add")[0] for _ in range(2))
    with database.transaction() as first:
        release.hold(first, one.id, one.token)
        thread = threading.Thread(target=settled, args=(database, outcome(other, result=4)))
        thread.start()
        thread.join()
        assert rows.one(WAITING) == 1, "it saw the first one open"
    settled(database, outcome(one, result=2))
    assert rows.one(WAITING) == 0
    run_all(app)
    assert tasks["ran"] == [("total", 2, 4)]


def test_a_part_whose_unique_key_is_anothers_refuses_the_workflow_whole(app: Celeriac, rows: Rows) -> None:
    tasks = declare(app, unique_by=lambda arguments: str(sorted(arguments.items(), key=str)))
    tasks["add"].delay(1, 1)
    with pytest.raises(EnqueueRefused, match="unique key"):
        chord([tasks["add"].s(2, 2), tasks["add"].s(1, 1)], tasks["total"].s())()
    assert rows("SELECT count(*) FROM worker_tasks") == [(1,)]


# -- what surrounds it -------------------------------------------------------------------------------------------------


def test_results_of_roles_that_keep_none_reach_the_body(app: Celeriac, rows: Rows) -> None:
    tasks = declare(app, keep=None)
    chord([tasks["add"].s(1, 1), tasks["add"].s(2, 2)], tasks["total"].s())()
    run_all(app)
    assert tasks["ran"][-1] == ("total", 2, 4)


def test_members_are_not_pruned_while_their_body_waits(app: Celeriac, rows: Rows) -> None:
    tasks = declare(app, keep=None)
    chord([tasks["add"].s(1, 1), chain(tasks["add"].s(2, 2), tasks["add"].s(1))], tasks["total"].s())()
    run_once(app)
    rows("UPDATE celeriac.history SET completed_at = completed_at - interval '1 year'")
    prune.prune_tasks(app.database, app.settings)
    run_all(app)
    assert tasks["ran"][-1] == ("total", 2, 5)
    assert prune.prune_tasks(app.database, app.settings) == 3, "roles that keep nothing kept them for the body alone"
    assert rows.one("SELECT count(*) FROM celeriac.history") == 0


def test_members_are_not_forgotten_until_their_body_has_finished(app: Celeriac, tasks: Any, rows: Rows) -> None:
    result = chord([tasks["add"].s(1, 1), tasks["add"].s(2, 2)], tasks["total"].s())()
    run_ticket(app, "add", [], "")
    assert rows.one(WAITING) == 0
    result.parent.forget()
    run_all(app)
    assert tasks["ran"][-1] == ("total", 2, 4)
    result.parent.forget()
    assert rows("SELECT role FROM celeriac.history") == [("total",)]


def test_a_workflow_in_a_callers_transaction_comes_with_its_commit(app: Celeriac, tasks: Any, rows: Rows) -> None:
    with Session(app.database.engine) as session:
        group(tasks["add"].s(1, 1), tasks["add"].s(2, 2)).apply_async(session=session)
        assert rows("SELECT count(*) FROM worker_tasks") == [(0,)]
        session.commit()
    run_all(app)
    assert len(tasks["ran"]) == 2


def test_a_task_that_replaces_itself_is_replaced_under_its_id(app: Celeriac, tasks: Any, rows: Rows) -> None:
    @app.task(role="swap", bind=True, shared=False, prompt=False, chunk=500)
    def swap(self: Any, what: str) -> Any:
        add = tasks["add"]
        return self.replace(add.s(1, 2) if what == "task" else group(add.s(1, 1), add.s(2, 2)))

    app.register_roles()
    one, many = swap.delay("task"), swap.delay("group")
    run_all(app)
    assert (one.get(timeout=1, disable_sync_subtasks=False), many.get(timeout=1)) == (3, [2, 4])
    assert rows("SELECT count(*) FROM worker_tasks WHERE role = 'swap'") == [(0,)]


@pytest.mark.parametrize("how", ["refused", "eager"])
def test_a_task_that_was_not_replaced_may_retry_with_other_arguments(
    app: Celeriac, tasks: Any, rows: Rows, how: str
) -> None:
    @app.task(role="eager", bind=True, shared=False, prompt=False)
    def eager(self: Any) -> Any:
        return self.replace(tasks["add"].s(1, 2))

    @app.task(role="swap", bind=True, shared=False, prompt=False, max_retries=1)
    def swap(self: Any, n: int = 0) -> int:
        if self.request.retries:
            return n
        if how == "eager":
            eager.apply()
        else:
            with pytest.raises(EnqueueRefused):
                self.replace(tasks["add"].s(object(), 2))
        raise self.retry(kwargs={"n": 7}, countdown=0)

    app.register_roles()
    result = swap.delay()
    run_all(app, lambda: rows("UPDATE worker_tasks SET scheduled_for = now() WHERE waits_for = 'time'"))
    assert result.get(timeout=1, disable_sync_subtasks=False) == 7
    assert rows(STATUS) == [("swap", "completed")]


@pytest.mark.parametrize("nested", [False, True])
def test_what_a_member_adds_to_its_chord_is_a_member(app: Celeriac, tasks: Any, rows: Rows, nested: bool) -> None:
    """It comes after the task that added it; in a header that has groups of its own, at the end."""
    given: list[Any] = []

    @app.task(role="adds", bind=True, shared=False, prompt=False, chunk=500)
    def adds(self: Any) -> int:
        self.add_to_chord(tasks["add"].s(10, 10))
        return 5

    @app.task(role="collect", shared=False, prompt=False, chunk=500)
    def collect(results: list[Any]) -> None:
        given.extend(results)

    app.register_roles()
    add = tasks["add"]
    header = [adds.s(), chain(add.s(1, 1), group(add.s(1), add.s(2))) if nested else add.s(3, 3)]
    result = chord(header, collect.s())()
    run_all(app)
    result.get(timeout=1)
    assert given == ([5, [3, 4], 20] if nested else [5, 20, 6])


def test_a_workflow_that_is_applied_again_runs_again(app: Celeriac, tasks: Any) -> None:
    """Its ids are frozen: they are the same tasks, which begin anew."""
    made = chord([tasks["add"].s(1, 1), tasks["add"].s(2, 2)], tasks["total"].s())
    made.freeze()
    for _ in range(2):
        result = made.apply_async()
        run_all(app)
        assert result.get(timeout=1, disable_sync_subtasks=False) == 6
    assert tasks["ran"] == [("add", 1, 1), ("add", 2, 2), ("total", 2, 4)] * 2


def test_a_group_is_saved_and_restored(app: Celeriac, tasks: Any) -> None:
    result = group(tasks["add"].s(1, 1), tasks["add"].s(2, 2))()
    result.save()
    run_all(app)
    restored = app.GroupResult.restore(result.id)
    assert restored.get(timeout=1, disable_sync_subtasks=False) == [2, 4]
    restored.delete()
    assert app.GroupResult.restore(result.id) is None
