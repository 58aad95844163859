"""A part of a workflow that fails or ends without its worker: what waits for it ends as well, each once."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import ChordError, TaskRevokedError

from celeriac import Celeriac
from celeriac.errors import CeleriacError
from celeriac.operate import cancel
from celeriac.repair import hand_over
from celeriac.settle import release
from celeriac.store import look
from celeriac.store.connections import Database
from tests.postgres.stages import claimed, started
from tests.postgres.test_workflows import STATUS, WAITING
from tests.postgres.workflows import declare, look_once, run_all
from tests.processes import Rows

pytestmark = pytest.mark.usefixtures("current")


@pytest.mark.parametrize("found_by", ["a worker's look", "the sweep"])
def test_a_process_that_dies_between_its_commit_and_its_look_holds_nothing_up(
    app: Celeriac, tasks: Any, rows: Rows, monkeypatch: pytest.MonkeyPatch, found_by: str
) -> None:
    result = chord([tasks["add"].s(1, 1)], tasks["total"].s())()
    with monkeypatch.context() as killed:
        killed.setattr(look, "after", lambda *_: set())
        run_all(app)
    assert rows.one(WAITING) == 1
    if found_by == "the sweep":
        rows("DELETE FROM celeriac.joins")
        hand_over.hand_over(app)
    else:
        look_once(app)
    run_all(app)
    assert result.get(timeout=1, disable_sync_subtasks=False) == 2
    assert rows.one("SELECT count(*) FROM celeriac.joins") == 0


def test_a_link_that_was_lost_has_no_second_successor(
    app: Celeriac, tasks: Any, database: Database, rows: Rows
) -> None:
    result = chain(tasks["add"].s(1, 1), tasks["add"].s(1))()
    (first,) = started(database, *claimed(database, "add"), role="add")
    with database.transaction() as connection:
        release.release(
            connection, [first.token], started=True, kind="rescue", why="silent", by="test", loss=True
        )  # fmt: skip
    run_all(app)
    assert result.get(timeout=1, disable_sync_subtasks=False) == 3
    assert rows.one("SELECT count(*) FROM worker_tasks") == 2


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_failed_member_fails_the_body_and_what_comes_after_it(app: Celeriac, tasks: Any, rows: Rows) -> None:
    add, fail, total, told = tasks["add"], tasks["fail"], tasks["total"], tasks["told"]
    result = chain(group(add.s(1, 1), fail.s()), total.s().on_error(told.s()), add.s(1))()
    run_all(app)
    with pytest.raises(ChordError, match="on purpose"):
        result.get(timeout=1, follow_parents=False, disable_sync_subtasks=False)
    assert ("told", rows.one("SELECT task_id FROM worker_tasks WHERE role = 'total'")) in tasks["ran"]
    assert not [done for done in tasks["ran"] if done[0] == "total"]
    assert sorted(rows(STATUS)) == [
        ("add", "completed"), ("add", "failed"), ("fail", "failed"), ("told", "completed"), ("total", "failed")
    ]  # fmt: skip


def test_a_failed_link_ends_the_rest_of_its_chain_and_the_chord_it_is_in(app: Celeriac, tasks: Any) -> None:
    add, fail = tasks["add"], tasks["fail"]
    broken = chain(add.s(1, 1), fail.s(), add.s(1))
    result = chord([broken, add.s(1, 1)], tasks["total"].s())()
    run_all(app)
    with pytest.raises(ChordError):
        result.get(timeout=1, follow_parents=False, disable_sync_subtasks=False)


def test_a_failed_link_asks_nothing_of_each_part_behind_it(
    app: Celeriac, tasks: Any, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    chord([chain(tasks["fail"].s(), group(tasks["add"].s(n) for n in range(5)))], tasks["total"].s())()
    asked: list[str] = []
    meta = app.backend.get_task_meta
    monkeypatch.setattr(app.backend, "get_task_meta", lambda task_id: asked.append(task_id) or meta(task_id))
    run_all(app)
    assert asked == []
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE role = 'add' AND status = 'failed'") == 5


def test_errbacks_are_called_only_for_the_last_attempt(app: Celeriac, rows: Rows) -> None:
    tasks = declare(app, max_rounds=2, round_delay=0.0)
    result = tasks["fail"].apply_async(link_error=tasks["told"].s())
    run_all(app, lambda: rows("UPDATE worker_tasks SET scheduled_for = now() WHERE waits_for = 'time'"))
    assert tasks["ran"] == [("fail",), ("fail",), ("told", result.id)]


@pytest.mark.parametrize("end", ["cancelled", "expired", "lost"])
def test_a_link_that_ends_without_its_worker_ends_its_chain(
    app: Celeriac, tasks: Any, database: Database, rows: Rows, end: str
) -> None:
    add = tasks["add"]
    result = chord([chain(add.s(1, 1), add.s(1)), add.s(2, 2)], tasks["total"].s())()
    link = result.parent.results[0].parent
    if end == "cancelled":
        with database.transaction() as connection:
            cancel.cancel(connection, link.id, by="op", why="")
    elif end == "expired":
        rows("UPDATE worker_tasks SET expires_at = now() - interval '1 s' WHERE task_id = :id", id=link.id)
    else:
        rows("UPDATE worker_tasks SET losses = 2 WHERE task_id = :id", id=link.id)
        for token in [started(database, *claimed(database, "add"), role="add")[0].token for _ in range(2)]:
            with database.transaction() as connection:
                release.release(connection, [token], started=True, kind="rescue", why="silent", by="test", loss=True)
    run_all(app, lambda: rows("UPDATE worker_tasks SET scheduled_for = now() WHERE waits_for = 'time'"))
    with pytest.raises((TaskRevokedError, CeleriacError)) as failed:
        result.parent.results[0].get(timeout=1, follow_parents=False, disable_sync_subtasks=False)
    assert isinstance(failed.value, TaskRevokedError) == (end != "lost")
    with pytest.raises(ChordError):
        result.get(timeout=1, follow_parents=False, disable_sync_subtasks=False)
