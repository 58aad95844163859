"""Follow-ups: the tasks that a run enqueued are inserted with its outcome, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from celeriac.enqueue import outbox, rests
from celeriac.enqueue.bulk import enqueue_bulk, is_anothers, tell_different
from celeriac.enqueue.rows import NewTask
from celeriac.settle.tombstones import Tombstone, bury


def follow_up(connection: Connection, tasks: Sequence[NewTask]) -> None:
    """Enqueue these follow-ups. Parts of a workflow never go to the outbox, where nothing would hold back what waits
    for them. A part whose unique key another task has, or may have, fails: that task does not belong to the workflow.
    """
    others = [task for task in tasks if not task.is_part]
    if others:
        tell_different(others, outbox.enqueue_or_put(connection, others))
    parts = [task for task in tasks if task.is_part]
    keyless = [task for task in parts if task.unique_key is None]
    enqueue_bulk(connection, keyless)
    taken = [(task, why) for task in parts if task.unique_key is not None and (why := _taken(connection, task))]
    if taken:
        bury(connection, [_failed(task, why) for task, why in taken])


def _taken(connection: Connection, task: NewTask) -> str | None:
    """Enqueue this part and return None, or the reason why it could not be enqueued."""
    receipts = outbox.enqueue_briefly(connection, [task])
    if receipts is None:
        rests.keep(connection, [task])  # taken back with it: its tombstone names them
        return f"an open transaction may have its unique key {task.unique_key!r}"
    return f"task {receipts[0].id} has its unique key {task.unique_key!r}" if is_anothers(task, receipts[0]) else None


def _failed(task: NewTask, why: str) -> Tombstone:
    args, kwargs = task.arguments
    return Tombstone(
        task_id=task.task_id, role=task.role, args=args, kwargs=kwargs, headers=task.headers or {}, error=why,
        result=None, workflow=task.workflow or "", barrier=task.barrier, place=task.place, after=task.parent_id,
        account=task.account,
    )  # fmt: skip
