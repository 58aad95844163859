"""Bulk: many tasks of one transaction, in few statements."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from celeriac.enqueue.insert import NewTask, Receipt, enqueue

#: Rows a statement.
BULK = 1000


def enqueue_bulk(connection: Connection, tasks: Sequence[NewTask], *, callers: bool = False) -> list[Receipt]:
    """Receipts in the order of the tasks. Keys are taken in one order across statements, as within each."""
    places = sorted(range(len(tasks)), key=lambda place: _key(tasks[place]))
    receipts: dict[int, Receipt] = {}
    for i in range(0, len(tasks), BULK):
        some = places[i : i + BULK]
        receipts |= zip(some, enqueue(connection, [tasks[place] for place in some], callers=callers), strict=True)
    return [receipts[place] for place in range(len(tasks))]


def is_anothers(task: NewTask, receipt: Receipt) -> bool:
    """Whether another task has the unique key of this part of a workflow."""
    return task.is_part and receipt.task_id != task.task_id


def _key(task: NewTask) -> tuple[str, bool, str]:
    return task.role, task.unique_key is None, task.unique_key or ""
