"""Many of a kind: the short statement leaves behind what the long one does."""

from __future__ import annotations

from typing import Any

import pytest

from celeriac.enqueue.insert import enqueue
from celeriac.enqueue.ready import are_alike, enqueue_alike, enqueue_lone, is_lone
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.processes import Rows

OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "all": {
        "priority": 7, "max_retries": None, "max_rounds": 3, "timeout": 2.5, "parent_id": 9, "enqueued_by": "x@y",
    },
}  # fmt: skip

TASKS = """
SELECT (to_jsonb(t) - '{id,task_id,scheduled_for,created_at,updated_at}'::text[])
    || jsonb_build_object('due', scheduled_for = created_at, 'room', (
        SELECT to_jsonb(r) - '{id,due_at}'::text[] || jsonb_build_object('due', r.due_at = t.scheduled_for)
        FROM celeriac.ready r WHERE r.id = t.id))
FROM celeriac.tasks t ORDER BY id
"""


@pytest.mark.parametrize("headers", [None, {"trace": "1"}])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_row_of_a_lone_task_is_that_of_the_long_statement(
    database: Database, rows: Rows, options: dict[str, Any], headers: dict[str, Any] | None
) -> None:
    written = []
    for insert in (enqueue, lambda connection, tasks: [enqueue_lone(connection, *tasks)]):
        task = new_task(account='of "x"', args=[1, 'ü"\\'], kwargs={}, is_named=False, headers=headers, **options)
        assert is_lone([task])
        with database.transaction() as connection:
            (receipt,) = insert(connection, [task])
        assert [(receipt.id, receipt.task_id)] == rows("SELECT id, task_id FROM celeriac.tasks")
        written.append(rows(TASKS))
        rows("DELETE FROM celeriac.ready")
        rows("DELETE FROM celeriac.tasks")
    assert written[0] == written[1]
    assert written[0][0][0]["room"]


@pytest.mark.parametrize(
    "more",
    [{"unique_key": "k"}, {"lock_key": "k"}, {"delay": 1.0}, {"is_named": True}, {"place": 1}, {"retry_count": 1}],
)
def test_what_another_may_be_in_the_way_of_is_not_lone(more: dict[str, Any]) -> None:
    assert not is_lone([new_task(**{"is_named": False} | more)])
    assert not is_lone([new_task(is_named=False), new_task(is_named=False)])


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_rows_are_those_of_the_long_statement(database: Database, rows: Rows, options: dict[str, Any]) -> None:
    found = []
    for insert in (enqueue, enqueue_alike):
        tasks = [
            new_task(account=account, args=[n, 'ü"\\'], kwargs={"a": account}, is_named=False, **options)
            for n, account in enumerate(["", "b", 'of "x"', ""])
        ]
        assert are_alike(tasks)
        with database.transaction() as connection:
            receipts = insert(connection, tasks)
        ids = rows("SELECT id, task_id FROM celeriac.tasks ORDER BY id")
        assert [(r.id, r.task_id, r.is_new, r.waits_for) for r in receipts] == [(*row, True, None) for row in ids]
        found.append(rows(TASKS))
        rows("DELETE FROM celeriac.ready")
        rows("DELETE FROM celeriac.tasks")
    assert found[0] == found[1]
    assert all(row[0]["room"] for row in found[0])
