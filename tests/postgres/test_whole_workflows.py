"""A workflow as a whole: its shape, its progress, its parts, and its end by cancel."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain, group

from celeriac import Celeriac, insights
from celeriac.errors import BadValue, Unknown
from celeriac.insights import Workflow
from celeriac.store.connections import Database
from tests.postgres.stages import claimed, started
from tests.postgres.workflows import run_all, run_once
from tests.processes import Rows

pytestmark = pytest.mark.usefixtures("current")

LABEL = "SELECT DISTINCT workflow FROM worker_tasks"


def whole(database: Database, given: int | str) -> Workflow:
    with database.reading() as connection:
        return insights.workflow(connection, given)


def shape(found: Workflow) -> tuple[list[tuple[str, dict[str, int]]], list[tuple[str, str, str]]]:
    roles = [node.role for node in found.nodes]
    nodes = [(node.role, node.counts) for node in found.nodes]
    return nodes, [(roles[edge.source], roles[edge.target], edge.kind) for edge in found.edges]


def a_chord(app: Celeriac, tasks: Any, n: int = 5) -> Any:
    """Behind a first part, which has ended; its id is the workflow's."""
    result = chain(tasks["told"].si("first"), group(tasks["add"].s(i, i) for i in range(n)), tasks["total"].s())()
    run_once(app)
    return result


def test_a_group_is_one_node_whose_body_waits_for_it(app: Celeriac, tasks: Any, database: Database, rows: Rows) -> None:
    result = a_chord(app, tasks)
    found = whole(database, result.id)
    assert shape(found) == (
        [("told", {"completed": 1}), ("add", {"pending": 5}), ("total", {"pending": 1})],
        [("told", "add", "link"), ("add", "total", "members"), ("told", "total", "link")],
    )
    assert (found.state, found.done, found.total, found.completed_at) == ("running", 1, 7, None)
    assert found.nodes[1].body == rows.one("SELECT id FROM worker_tasks WHERE role = 'total'")
    assert started(database, *claimed(database, "add", 2), role="add")
    claimed(database, "add")
    found = whole(database, result.id)
    assert found.nodes[1].counts == {"pending": 2, "claimed": 1, "running": 2}
    assert (found.counts["pending"], found.counts["running"]) == (3, 2)
    began = rows.one("SELECT min(started_at) FROM worker_tasks")
    assert found.started_at == began


def test_it_is_over_with_its_last_part(app: Celeriac, tasks: Any, database: Database, rows: Rows) -> None:
    add = tasks["add"]
    last = chain(add.s(1, 2), group(add.s(3), add.s(4)), tasks["total"].s(), tasks["told"].si("x"))()
    (label,) = rows.one("SELECT array_agg(workflow) FROM worker_tasks")
    assert (whole(database, label).done, whole(database, label).total) == (0, 1), "links come later"
    run_once(app)
    assert shape(whole(database, label)) == (
        [("add", {"completed": 1}), ("add", {"pending": 2}), ("total", {"pending": 1})],
        [("add", "add", "link"), ("add", "total", "members"), ("add", "total", "link")],
    )
    run_all(app)
    found = whole(database, last.id)
    assert (found.id, found.state, found.done, found.total) == (label, "completed", 5, 5)
    assert found.edges[-1].kind == "link"
    assert found.completed_at is not None
    assert found.nodes[1].body == rows.one("SELECT id FROM worker_tasks WHERE role = 'total'"), "also when it is over"


def test_one_that_failed_says_so_and_nodes_are_bounded(
    app: Celeriac, tasks: Any, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = chain(tasks["fail"].s(), tasks["add"].s(1))()
    run_all(app)
    assert whole(database, result.id).state == "failed"
    monkeypatch.setattr("celeriac.insights.tasks.workflows.MOST_NODES", 1)
    found = whole(database, result.id)
    assert (len(found.nodes), found.left_out, found.total) == (1, 1, 2)


def test_it_is_found_by_any_of_its_parts(app: Celeriac, tasks: Any, database: Database, rows: Rows) -> None:
    a_chord(app, tasks)
    alone = tasks["add"].delay(1, 1)
    label = rows.one("SELECT DISTINCT workflow FROM worker_tasks WHERE workflow IS NOT NULL")
    for task in rows("SELECT id, task_id FROM worker_tasks WHERE workflow = :w", w=label):
        for given in (*task, str(task[0])):
            assert whole(database, given).id == label
    with pytest.raises(Unknown, match="belongs to no workflow"):
        whole(database, alone.id)
    with pytest.raises(Unknown, match="there is no workflow"):
        whole(database, "nonesuch")


def test_each_that_a_handler_begins_is_one_of_its_own(
    app: Celeriac, tasks: Any, database: Database, rows: Rows
) -> None:
    @app.task(role="start", prompt=False, chunk=500, shared=False)
    def start() -> None:
        for n in range(2):
            chain(tasks["told"].si(n), tasks["add"].si(n, 1))()

    @app.task(role="nightly", prompt=False, chunk=500, shared=False, keep="forever")
    def nightly() -> None:
        start.delay()

    app.register_roles()
    begun = nightly.delay()
    run_all(app)
    first = rows("SELECT task_id, workflow FROM worker_tasks WHERE role = 'told'")
    assert len(first) == 2
    for task_id, workflow in first:
        assert workflow == task_id
        assert (whole(database, task_id).id, whole(database, task_id).total) == (task_id, 2)
    with pytest.raises(Unknown, match="belongs to no workflow"):
        whole(database, begun.id)


def test_one_is_found_by_its_id_though_a_task_of_that_id_is_no_part_of_it(
    app: Celeriac, tasks: Any, database: Database, rows: Rows
) -> None:
    begun = tasks["add"].delay(1, 1)
    chain(tasks["told"].si("first"), tasks["add"].si(1, 1))()
    rows("UPDATE celeriac.tasks SET workflow = :id WHERE workflow IS NOT NULL", id=begun.id)
    row = rows.one("SELECT id FROM worker_tasks WHERE task_id = :id", id=begun.id)
    assert {whole(database, given).id for given in (begun.id, row)} == {begun.id}


def test_its_parts_are_listed_page_by_page(app: Celeriac, tasks: Any, database: Database, rows: Rows) -> None:
    result = a_chord(app, tasks)
    started(database, *claimed(database, "add"), role="add")

    def listed(**asked: Any) -> tuple[list[dict[str, Any]], str | None]:
        with database.reading() as connection:
            page = insights.workflow_tasks(connection, result.id, **asked)
        return page.items, page.next

    found, after = [], None
    while True:
        items, after = listed(limit=2, after=after)
        assert len(items) <= 2
        found += items
        if after is None:
            break
    assert [part["id"] for part in found] == [i for (i,) in rows("SELECT id FROM worker_tasks ORDER BY id DESC")]
    body = next(part for part in found if part["role"] == "total")
    members = [part for part in found if part["role"] == "add"]
    assert (body["waits_for"], body["barrier"], body["body"]) == ("members", None, None)
    assert {(part["barrier"], part["body"]) for part in members} == {(body["awaits"], body["id"])}
    assert sorted(part["place"] for part in members) == list(range(5))
    assert [part["id"] for part in listed(role="add", barrier=body["awaits"])[0]] == [part["id"] for part in members]
    assert {part["status"] for part in listed(statuses=["completed"])[0]} <= {"completed"}
    with pytest.raises(BadValue, match="status"):
        listed(statuses=["nonsense"])
    with pytest.raises(BadValue, match="after"):
        listed(after="x")


def test_a_step_that_never_came_is_in_its_customers_list(app: Celeriac, tasks: Any, rows: Rows) -> None:
    """A link behind the one that failed, which nobody ever enqueued."""
    fail, told = tasks["fail"], tasks["told"]
    chain(fail.si().set(account="acme"), told.si("never"))()
    run_all(app)
    assert rows("SELECT role, status, account FROM worker_tasks ORDER BY role") == [
        ("fail", "failed", "acme"), ("told", "failed", "acme"),
    ]  # fmt: skip
