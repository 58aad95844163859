"""`self.session`: a handler's own transaction, which the settle commits with its outcome."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from psycopg2.extensions import TRANSACTION_STATUS_IDLE, TRANSACTION_STATUS_INERROR
from sqlalchemy import Connection, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session

from celeriac.errors import CeleriacError
from celeriac.store import forks
from celeriac.store.failures import in_a_line
from celeriac.store.pools import SAID_READ_ONLY

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: SQL that ends or begins a transaction; a savepoint's `ROLLBACK TO` does not.
_ENDS = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*+(?:COMMIT|END|ABORT|BEGIN|START\s+TRANSACTION|PREPARE\s+TRANSACTION"
    r"|ROLLBACK(?!\s+(?:WORK\s+|TRANSACTION\s+)?TO\b))\b",
    re.IGNORECASE | re.DOTALL,
)

#: SQL that makes the transaction read-only.
_MAKES_READ_ONLY = re.compile(r"\s*SET\b.*\bread[ _]only\b", re.IGNORECASE | re.DOTALL)

#: The advice in errors about them.
_EARLY = (
    "self.session commits with the task's outcome, or not at all: for what has to be committed while the task goes on, "
    "use `{} self.early_commit() as session:`"
)

#: The error of a process that a handler has forked and that goes on with the handler's session.
_FORKED = (
    "a process that a handler has forked may not use the handler's session, whose transaction is the task's: open one "
    "of its own, with sqlalchemy.orm.Session(self.app.database.engine)"
)


class HandlersSession(Session):
    """`self.session`, which the settle commits. `said`: whether a statement has begun its transaction on the server.
    `task`: the id of its handler's task. `is_over`: whether that has ended.
    """

    is_settling = False
    said = False
    is_over = False
    task: int | None = None
    watched: Connection | None = None

    #: The keyword that enters a block in its handler.
    enters = "with"

    def __exit__(self, kind: type[BaseException] | None, *more: Any) -> None:
        """Leave a block of the handler's: what it has written there commits with the outcome, unless it has failed."""
        if kind is not None:
            super().__exit__(kind, *more)

    def get_bind(self, *args: Any, **options: Any) -> Any:
        """Return whom to connect to. Raises CeleriacError once its task is over: nothing would ever be committed."""
        if self.is_over:
            raise CeleriacError(
                f"this session was task {self.task}'s, and committed or rolled back with it: take self.session anew in "
                "each task, and keep none"
            )
        return super().get_bind(*args, **options)

    def within(self, act: Callable[[], T]) -> T:
        """Call a function that uses the session, in the thread or loop where it can be used."""
        return act()

    def end(self) -> None:
        """Roll back what is not committed, and refuse whatever comes later."""
        self.is_over = True
        try:
            self.close()
        except DBAPIError:
            self._let_go()  # the server has rolled back, or will
        except SQLAlchemyError as error:  # another thread of the handler's still uses it
            logger.warning("The session of task %s is not closed in good order: %s", self.task, in_a_line(error))
            self._let_go()

    def _let_go(self) -> None:
        with suppress(SQLAlchemyError):
            self.invalidate()

    @property
    def early(self) -> str:
        return _EARLY.format(self.enters)

    def refuse_ended(self) -> None:
        """Raise CeleriacError if the handler's transaction can no longer commit with its outcome."""
        driver: Any = self.connection().connection.driver_connection
        status = driver.info.transaction_status
        if status == TRANSACTION_STATUS_INERROR:
            raise CeleriacError(
                "a statement of self.session failed and the handler went on, but its transaction cannot: put what may "
                f"fail into `{self.enters} self.session.begin_nested():`, or call self.session.rollback()"
            )
        if status == TRANSACTION_STATUS_IDLE and self.said:
            raise CeleriacError(f"the handler has ended the transaction of self.session: {self.early}")


@event.listens_for(HandlersSession, "after_begin", propagate=True)
def _watch(session: HandlersSession, _: Any, connection: Connection) -> None:
    if not session.in_nested_transaction():
        session.said = False
    if session.watched is connection:
        return  # a savepoint
    session.watched = connection
    generation = forks.generation
    connection.info.pop(SAID_READ_ONLY, None)

    def note(_: Any, __: Any, statement: str, *more: Any) -> None:  # noqa: ARG001
        if generation != forks.generation:
            raise CeleriacError(_FORKED)
        session.said = True
        if not session.is_settling and _ENDS.match(statement):
            raise CeleriacError(f"a handler ran {statement.split(None, 1)[0].upper()}: {session.early}")
        if _MAKES_READ_ONLY.match(statement):
            connection.info[SAID_READ_ONLY] = True

    event.listen(connection, "before_cursor_execute", note)


@event.listens_for(HandlersSession, "before_commit", propagate=True)
def _refuse_commit(session: HandlersSession) -> None:
    """Refuse a commit by the handler. The release of a savepoint is allowed, since it commits nothing yet."""
    if not session.is_settling and not session.in_nested_transaction():
        raise CeleriacError(session.early)
