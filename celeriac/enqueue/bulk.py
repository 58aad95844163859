"""Bulk: enqueue many tasks of one transaction in few statements."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from sqlalchemy import Connection

from celeriac.enqueue import rests
from celeriac.enqueue.insert import Callers, enqueue
from celeriac.enqueue.ready import are_alike, enqueue_alike, enqueue_lone, is_lone
from celeriac.enqueue.rows import NewTask, Receipt
from celeriac.errors import IdTaken

logger = logging.getLogger(__name__)

#: Rows in one statement.
BULK = 1000


def enqueue_bulk(connection: Connection, tasks: Sequence[NewTask], *, callers: Callers | None = None) -> list[Receipt]:
    """Enqueue these tasks and return their receipts in the same order.

    Unique keys are taken in one order across statements, as within each, so that two bulks never deadlock.
    """
    rests.keep(connection, tasks)
    places: Sequence[int] = range(len(tasks))
    if any(task.unique_key is not None for task in tasks):
        places = sorted(places, key=lambda place: _key(tasks[place]))
    receipts: dict[int, Receipt] = {}
    for i in range(0, len(tasks), BULK):
        some = places[i : i + BULK]
        receipts |= zip(some, _enqueue(connection, [tasks[place] for place in some], callers), strict=True)
    return [receipts[place] for place in range(len(tasks))]


def enqueue_while_made(connection: Connection, batches: Iterable[Sequence[NewTask]]) -> Iterator[Receipt]:
    """Insert each batch while the next one is made, and yield receipts in the order of the tasks.

    It is for tasks without unique keys, since those would have to be taken in one order across batches. The connection
    belongs to another thread until the last receipt is there; an error in that thread is raised here.
    """
    beside = ThreadPoolExecutor(1, thread_name_prefix="celeriac-bulk")
    under_way: Future[list[Receipt]] | None = None
    try:
        for batch in batches:
            following = _begun(beside, connection, batch)
            if under_way is not None:
                yield from under_way.result()
            under_way = following
        if under_way is not None:
            yield from under_way.result()
    finally:
        _end(beside, connection)


def _begun(beside: ThreadPoolExecutor, connection: Connection, batch: Sequence[NewTask]) -> Future[list[Receipt]]:
    try:
        return beside.submit(_enqueue, connection, batch, None)
    except RuntimeError:  # the process is exiting and starts no more threads
        done: Future[list[Receipt]] = Future()
        done.set_result(_enqueue(connection, batch, None))
        return done


def _end(beside: ThreadPoolExecutor, connection: Connection) -> None:
    """Wait for the current insert before the transaction ends; if that is interrupted, invalidate the connection."""
    try:
        beside.shutdown(cancel_futures=True)
    except BaseException:
        connection.invalidate()
        raise


def _enqueue(connection: Connection, tasks: Sequence[NewTask], callers: Callers | None) -> list[Receipt]:
    if is_lone(tasks):
        return [enqueue_lone(connection, tasks[0])]
    return enqueue_alike(connection, tasks) if are_alike(tasks) else enqueue(connection, tasks, callers=callers)


def is_anothers(task: NewTask, receipt: Receipt) -> bool:
    """Return whether another task has the unique key of this part of a workflow."""
    return task.is_part and receipt.task_id != task.task_id


def refuse_different(tasks: Sequence[NewTask], receipts: Sequence[Receipt | None]) -> None:
    """Raise IdTaken if another task has a task's id; the caller then rolls back. Parts of a workflow that begins anew
    are exempt: they have the ids they had before.
    """
    for task, receipt in zip(tasks, receipts, strict=True):
        if receipt is not None and receipt.differs and not task.is_part and not task.again:
            raise IdTaken(
                f"{task.role}: task_id={task.task_id!r:.100}: task {receipt.id} has this id, and another role or other "
                "arguments: give another; nothing was enqueued"
            )


def tell_different(tasks: Sequence[NewTask], receipts: Sequence[Receipt] | None) -> None:
    """Log a task whose id another task has, where it is too late to refuse: the call, or the handler, has returned."""
    for task, receipt in zip(tasks, receipts or (), strict=False):
        if receipt.differs and not task.is_part and not task.again:
            logger.error(
                "A task of %s was not enqueued: task %d has its id %.100r, and another role or other arguments",
                task.role, receipt.id, task.task_id,
            )  # fmt: skip


def _key(task: NewTask) -> tuple[str, bool, str]:
    return task.role, task.unique_key is None, task.unique_key or ""
