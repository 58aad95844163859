"""Enqueuing: rows into Postgres, and a wake-up for ready ones, which is only a hint and costs the caller nothing."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

from psycopg2.errors import LockNotAvailable
from sqlalchemy import Connection, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, SessionTransaction

from celeriac.dispatch.kicks import Kicker
from celeriac.enqueue import outbox
from celeriac.enqueue.bulk import enqueue_bulk, enqueue_while_made, is_anothers, refuse_different
from celeriac.enqueue.insert import Callers, finished
from celeriac.enqueue.readiness import refuse_unready
from celeriac.enqueue.ready import enqueue_ready, is_ready
from celeriac.enqueue.rows import NewTask, Receipt
from celeriac.errors import EnqueueRefused
from celeriac.roles.role import Role
from celeriac.run import run as running
from celeriac.seam import broker
from celeriac.seam.app import Ambient, Bound, CallAfterCommit, EnqueuerApp
from celeriac.store.drivers import statements_on
from celeriac.store.failures import retry_deadlocks
from celeriac.store.patience import BRIEF

logger = logging.getLogger(__name__)


def no_ambient() -> Ambient | None:
    """Return None: no framework has a transaction open."""
    return None


class Enqueuer:
    """The writer of an app's new tasks."""

    def __init__(self, app: EnqueuerApp) -> None:
        broker.url_of(app.conf, app.settings)  # raises for an invalid address, though no enqueue needs Redis
        # Imported here, as the wake-up thread cannot import anything once a short program is ending.
        importlib.import_module("celeriac.seam.transport")
        self.app = app
        self.kicker = Kicker(self._send)
        self.insert: Callable[[list[NewTask], Bound | None], list[Receipt | None]] = self._insert_when_ready
        if app.settings.otel:
            from celeriac.run import tracing

            self.insert = tracing.traced(self._insert_when_ready)

    def insert_many(
        self, role: Role, batches: Iterator[list[NewTask]], bound: Bound | None
    ) -> Iterator[tuple[str, Receipt | None]]:
        """Insert tasks of one role as `insert` does; yield each one's own id and its receipt.

        They are committed once the last receipt is consumed. Each batch is inserted while the next one is made. The
        exceptions, where all tasks are made first: a transaction that would be open for long, a caller's transaction,
        and unique keys, which have to be taken in one order. Receipts are not collected in a list: that many objects
        would cost the garbage collector more time than the rows take.
        """
        begun = list(islice(batches, 2))
        if len(begun) < 2 or bound is not None or not self._may_begin(role, begun[0]):
            tasks = list(chain(*begun, *batches))
            yield from ((t.task_id, receipt) for t, receipt in zip(tasks, self.insert(tasks, bound), strict=True))
            return
        is_ready = False
        with _refusing_unready(), self.app.database.transaction(limited=True) as connection:
            for receipt in enqueue_while_made(connection, chain(begun, batches)):
                is_ready = is_ready or receipt.waits_for is None
                yield receipt.task_id, receipt
        if is_ready:
            self._kick(begun[0][0].lane)

    def _may_begin(self, role: Role, first: Sequence[NewTask]) -> bool:
        """Return whether the first tasks may be inserted before the last are made."""
        has_order = role.unique_by is not None or first[0].unique_key is not None
        if self.app.ambient() is not None:
            return False
        run = running.current()
        is_within = run is not None and not run.settled
        return not (has_order or role.is_asked_for_keys or self.app.settings.otel or is_within)

    def _insert_when_ready(self, tasks: list[NewTask], bound: Bound | None) -> list[Receipt | None]:
        """Insert the tasks in the caller's transaction if there is one, else in their own, and send wake-ups.

        In a handler, without a caller's transaction, the rows are kept until the handler's outcome is written; once
        that is being written they are inserted at once. Raises NotReady.
        """
        try:
            if bound is not None:
                return self._insert_in(bound, tasks)
            if (ambient := self.app.ambient()) is not None:
                return self._insert_in_ambient(ambient, tasks)
            return self._insert_outside(tasks)
        except Exception as error:
            refuse_unready(error)
            raise

    def _insert_outside(self, tasks: list[NewTask]) -> list[Receipt | None]:
        if (run := running.current()) is not None and not run.settled and run.bring(tasks):
            return [None] * len(tasks)
        one = tasks[0] if len(tasks) == 1 else None
        if one is not None and is_ready(one):  # the most frequent case: the shortest way
            with self.app.database.cursor() as cursor:
                receipt = enqueue_ready(cursor, one)
            if receipt is not None:
                self._kick(one.lane, receipt.id)
                return [receipt]
        receipts = retry_deadlocks(lambda: self._insert_or_find(tasks))
        ready = {t.lane: r.id for t, r in zip(tasks, receipts, strict=True) if r and r.is_new and r.waits_for is None}
        for name, row in ready.items():
            self._kick(name, None if one is None else row)
        return receipts

    def _insert_or_find(self, tasks: list[NewTask]) -> list[Receipt | None]:
        """Insert tasks; a single one never waits for somebody's open transaction: see `celeriac.enqueue.outbox`."""
        if len(tasks) != 1 or tasks[0].is_part:
            with self.app.database.transaction(limited=True) as connection:
                return list(_whole(connection, tasks))
        try:
            receipts = self._insert_one(tasks)
        except DBAPIError as error:
            if not isinstance(error.orig, LockNotAvailable):
                raise
            receipts = None
            with self.app.database.transaction(limited=True) as connection:
                outbox.put(connection, tasks)
        return [None] if receipts is None else list(receipts)

    def _insert_one(self, tasks: list[NewTask]) -> list[Receipt] | None:
        with self.app.database.transaction(patience=BRIEF, limited=True) as connection:
            receipts = outbox.enqueue_or_put(connection, tasks)
            if receipts is not None:
                refuse_different(tasks, receipts)
        return receipts

    def _insert_in(self, bound: Bound, tasks: list[NewTask]) -> list[Receipt | None]:
        if isinstance(bound, Session):
            self._kick_after_commit(bound, tasks)
            return list(self._insert_in_callers(statements_on(bound.connection()), tasks))
        if isinstance(bound, Connection):
            # A plain connection reports its commit too early for a wake-up; the workers' own poll finds the rows.
            return list(self._insert_in_callers(statements_on(bound), tasks))
        with bound.transaction() as is_own:
            receipts = list[Receipt | None](self._insert_in_callers(bound, tasks))
        if is_own:
            asked = {(task.lane, task.lock_key) for task in tasks}
            self.app.beside.wait(lambda: self._after_commit(asked))
        return receipts

    def _insert_in_ambient(self, ambient: Ambient, tasks: list[NewTask]) -> list[Receipt | None]:
        if ambient.connection is None:
            ambient.after_commit(CallAfterCommit(lambda: self._insert_later(tasks), [task.task_id for task in tasks]))
            return [None] * len(tasks)
        receipts = self._insert_in_callers(ambient.connection, tasks)
        keys = {(task.lane, task.lock_key) for task in tasks}
        ambient.after_commit(lambda: self._after_commit(keys))
        return list(receipts)

    def _insert_later(self, tasks: list[NewTask]) -> None:
        """Insert after a commit in another database. Raises NotReady in that commit's caller."""
        with _refusing_unready():
            self._insert_outside(tasks)

    def _insert_in_callers(self, connection: Any, tasks: list[NewTask]) -> list[Receipt]:
        """Insert in the caller's transaction, where a refusal leaves nothing behind."""
        if not any(task.is_part or task.is_named for task in tasks):
            return _whole(connection, tasks, callers=self._finished)
        with connection.begin_nested():
            return _whole(connection, tasks, callers=self._finished)

    def _finished(self, task_ids: Sequence[str]) -> set[str]:
        return self.app.beside.wait(lambda: self._finished_by_now(task_ids))

    def _finished_by_now(self, task_ids: Sequence[str]) -> set[str]:
        with self.app.database.statement(limited=True) as connection:
            return finished(connection, task_ids)

    def _kick_after_commit(self, session: Session, tasks: list[NewTask]) -> None:
        if self not in session.info:
            session.info[self] = set()
            event.listen(session, "after_commit", self._committed)
            event.listen(session, "after_transaction_end", self._ended)
        session.info[self].update((task.lane, task.lock_key) for task in tasks)

    def _committed(self, session: Session) -> None:
        """Send wake-ups after a session's commit. Never raises, as the commit is done."""
        if session.in_nested_transaction():  # releasing a savepoint commits nothing yet
            return
        asked = set(session.info.get(self, ()))
        if asked:
            self.app.beside.wait(lambda: self._after_commit(asked))

    def _after_commit(self, asked: Collection[tuple[str, str | None]]) -> None:
        """Run the post-commit check and wake-ups for committed lanes and lock keys. Never raises."""
        try:
            self.app.database.look_at({key for _, key in asked if key is not None})
        except Exception as error:
            logger.warning("A worker's next check hands over what this commit left: %s", error)
        self.kick({lane for lane, _ in asked})

    def _ended(self, session: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is None:
            session.info.get(self, set()).clear()

    def kick(self, roles: Iterable[str]) -> None:
        """Wake these roles or lanes after a commit that left work for them, so that prompt ones need no poll.

        A role's name stands for all its lanes.
        """
        for name in roles:
            for lane in self._lanes(name):
                self._kick(lane)

    def _lanes(self, name: str) -> list[str]:
        """Return the role's lanes; the name alone if the role cannot be read: the wake-up then reports the error."""
        try:
            return [role.lane for role in self.app.role_declared(name)[0].lanes]
        except Exception:
            return [name]

    def _kick(self, name: str, lone: int | None = None) -> None:
        """Send a wake-up. Never raises: the work is accepted, and the workers' next poll finds it."""
        try:
            role, _ = self.app.role_declared(name)
            if role.prompt and role.enabled():
                self.kicker.kick(role.lane, lone)
        except Exception as error:
            logger.warning("No wake-up for %s could be sent; the workers' next poll makes up for it: %s", name, error)

    def _send(self, name: str, lone: int | None) -> None:
        """Publish the wake-up; runs in the kicker's thread."""
        role, _ = self.app.role_declared(name)
        self.app.publisher.kick(role.lane, role.queue, lone)


@contextmanager
def _refusing_unready() -> Iterator[None]:
    """Raise NotReady in place of the errors of a Postgres that is not ready for work."""
    try:
        yield
    except Exception as error:
        refuse_unready(error)
        raise


def _whole(connection: Connection, tasks: list[NewTask], *, callers: Callers | None = None) -> list[Receipt]:
    """Insert all the tasks or none. The caller rolls back on an error.

    Raises IdTaken, SnapshotTooOld, or EnqueueRefused if a part of the workflow is already a task of another one.
    """
    receipts = enqueue_bulk(connection, tasks, callers=callers)
    refuse_different(tasks, receipts)
    for task, receipt in zip(tasks, receipts, strict=True):
        if is_anothers(task, receipt):
            raise EnqueueRefused(
                f"{task.role}: task {receipt.id} has the unique key {task.unique_key!r}, and is none of this workflow; "
                "nothing was enqueued"
            )
    return receipts
