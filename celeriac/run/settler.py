"""Settle runs: outcome, follow-ups and the handler's own writes in one transaction, then the wake-ups they call for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from celeriac.counters import COUNTERS
from celeriac.enqueue import outbox
from celeriac.enqueue.rows import NewTask
from celeriac.errors import CeleriacError, LeaseLost, NotSettled
from celeriac.operate.cancel import cancel_all
from celeriac.run import coroutines, lease, lines
from celeriac.run.run import Run
from celeriac.run.sessions import HandlersSession
from celeriac.settle.outcome import LOST
from celeriac.settle.write import settle
from celeriac.store import look
from celeriac.store.connections import Database, end_silent
from celeriac.store.failures import is_gone, is_locked, is_retryable, retry_while_away, takes_no_writes

logger = logging.getLogger(__name__)


def _parts(run: Run) -> list[NewTask]:
    """Return the tasks of its workflow that it has enqueued: its links, and its handler's calls."""
    return [task for task in run.follow_ups if task.workflow is not None]


class _Unwritten(Exception):
    """Postgres refused an outcome; the cause of this error says why."""


class _WroteNothing(Exception):
    """The handler has made its transaction read-only, before it wrote anything."""


class _HeldUp(Exception):
    """Somebody has locked rows that an outcome concerns; the session is as before."""


#: Seconds that an outcome waits for another transaction's lock before it is left to be written later.
PATIENCE = 0.5

#: A savepoint around an outcome in a handler's session: a lock that is not granted undoes the outcome alone. Whom the
#: handler was in its transaction, and for how long its statements might take, is not for the outcome.
_BEGIN = (
    f"SAVEPOINT celeriac_settle; SET LOCAL lock_timeout = '{PATIENCE * 1000:.0f} ms'; "
    "SET LOCAL SESSION AUTHORIZATION DEFAULT; SET LOCAL role TO DEFAULT; SET LOCAL statement_timeout TO DEFAULT"
)
_UNDO = "ROLLBACK TO SAVEPOINT celeriac_settle"

#: The handler's own lock_timeout applied until its outcome; its COMMIT waits by the server's default.
_DONE = "RELEASE SAVEPOINT celeriac_settle; SET LOCAL lock_timeout TO DEFAULT"

_HAS_WRITTEN = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write: what became of each task whose outcome counts, by id; the follow-ups;
    the late finishes' ids.
    """

    mine: dict[int, str]
    follow_ups: Sequence[NewTask] = ()
    refused: list[int] = field(default_factory=list)


class Settler:
    """Settles runs. `on_enqueued` is called with the roles of committed follow-ups."""

    def __init__(self, database: Database, by: str, on_enqueued: Callable[[Iterable[str]], None]) -> None:
        self.database = database
        self.by = by
        self.on_enqueued = on_enqueued

    def settle(self, runs: Sequence[Run]) -> None:
        """Write the outcome of each run that has one and is not settled yet; follow-ups of refused ones are dropped.

        If somebody has locked the rows concerned, nothing is written, and Postgres' error is raised. Raises NotSettled
        if Postgres stays away: the caller must then let the runs be lost.
        """
        open_runs = [run for run in runs if run.outcome is not None and not run.settled]
        if not open_runs:
            return
        try:
            self._settle_together(open_runs)
        except DBAPIError as error:
            if is_gone(error):
                raise NotSettled(f"{len(open_runs)} outcome(s) could not be written: Postgres stayed away") from error
            if len(open_runs) == 1 or is_locked(error):
                raise
            self._settle_apart(open_runs)

    def _settle_together(self, runs: Sequence[Run]) -> None:
        written = retry_while_away(partial(self._settle, runs), "settle")
        for run in runs:
            run.settled, run.became = True, written.mine.get(run.task.id)
        if written.follow_ups:
            self._tell(written.follow_ups)
        if written.refused:
            self._tell_refused([run for run in runs if run.task.id in written.refused])

    def _settle_apart(self, runs: Sequence[Run]) -> None:
        """Settle one by one, because Postgres refused one: the others' outcomes count.
        Raises the error of the last refused.
        """
        refused: Exception | None = None
        for run in runs:
            try:
                self.settle([run])
            except (DBAPIError, NotSettled) as error:
                refused = error
        if refused is not None:
            raise refused

    def _settle(self, runs: Sequence[Run], *, again: bool = False) -> Written:
        """Write these outcomes. If they were sent before, they may have been committed although no answer came.

        Several statements form one transaction, because the first might count although a later one is refused.
        """
        plain, has_more = 0, False
        for run in runs:
            again = again or run.said
            run.said = True
            run.follow_ups = tuple(run.follow_ups)  # as `seal` does
            plain += run.outcome is not None and run.outcome.is_plain
            has_more = has_more or bool(run.follow_ups or run.tombstones or run.outcome is None)
            has_more = has_more or run.outcome.status == LOST  # type: ignore[union-attr]
        is_one = not has_more and plain in (0, len(runs))
        begun = self.database.statement() if is_one else self.database.transaction()
        with COUNTERS.timing("sql_seconds", "settle"), begun as connection:
            return self._write(connection, runs, again=again, has_more=has_more)

    def _write(
        self, connection: Connection, runs: Sequence[Run], *, again: bool = False, has_more: bool = True
    ) -> Written:
        """Write them; `has_more`: follow-ups or the like have to be written, too, so it takes a transaction."""
        refused: list[int] = []
        outcomes = [run.outcome for run in runs if run.outcome is not None]
        if not has_more:
            return Written(settle(connection, outcomes, self.by, again=again, refused=refused), refused=refused)
        parts = [run.task for run in runs if run.follow_ups and _parts(run)]
        asked = lease.asked_to_stop(connection, parts) if parts else set()
        follow_ups = {run.task.id: run.follow_ups for run in runs if run.follow_ups}
        tombstones = {run.task.id: run.tombstones for run in runs if run.tombstones}
        mine = settle(
            connection, outcomes, self.by, again=again, follow_ups=follow_ups, tombstones=tombstones, refused=refused
        )
        if asked:
            self._stop_what_follows(connection, [run for run in runs if run.task.id in asked & mine.keys()])
        return Written(mine, [task for i, tasks in follow_ups.items() if i in mine for task in tasks], refused)

    def _stop_what_follows(self, connection: Connection, cancelled: Sequence[Run]) -> None:
        """Cancel the successors of these runs, whether the runs were stopped by the cancel or had ended before it."""
        parents = [run.task.id for run in cancelled]
        if ids := [task.task_id for run in cancelled for task in _parts(run)]:
            outbox.drop(connection, ids, parents)
            cancel_all(connection, ids, by=self.by, why="what it follows was cancelled", parents=parents)

    def settle_with_session(self, run: Run, session: HandlersSession) -> None:
        """Commit the handler's writes with the outcome; if the row is no longer this run's, commit neither.

        An error of the commit is the attempt's error: it propagates, and the tracer records the failure. Raises
        LeaseLost, so that the task runs again, if Postgres went away, ended the transaction for another's sake, or cut
        the COMMIT short by a limit on statements or locks. If somebody has locked the rows concerned, the session stays
        open as `run.late_session`, for `settle_late`.
        """
        try:
            written, keys = session.within(lambda: self._commit_with(run, session))
        except _HeldUp:
            run.unseal()
            run.opened, run.late_session = None, session
            return
        except _WroteNothing:
            run.drop_session()
            coroutines.aside(lambda: self.settle([run]))
            return
        except BaseException as error:
            run.drop_session()
            if isinstance(error, _Unwritten) or is_retryable(error):
                because = error.__cause__ if isinstance(error, _Unwritten) else error
                coroutines.aside(lambda: self._lose(run, because))
                return
            run.reopen()
            raise
        run.drop_session()
        coroutines.aside(lambda: self.database.look_at(keys) if written.mine else self.settle([run]))
        run.settled, run.became = True, written.mine.get(run.task.id)
        self._tell(written.follow_ups)

    def _commit_with(self, run: Run, session: HandlersSession) -> tuple[Written, set[str]]:
        """Commit both. If the settle is refused, its event is written in a transaction of its own, as this one is
        rolled back with the handler's writes.
        """
        session.flush()
        session.refuse_ended()
        session.is_settling = True
        run.seal()
        written, keys = self._write_in(session.connection(), run)
        session.commit() if written.mine else session.rollback()
        return written, keys

    def settle_late(self, run: Run) -> bool:
        """Settle a run that a lock has delayed; return whether it is settled now.
        An error of the commit is the run's failure.
        """
        session, run.late_session = run.late_session, None
        if session is not None:
            run.opened = session
            try:
                self.settle_with_session(run, session)
            except LeaseLost:
                logger.info("Task %s runs again", run.task.id)
            except Exception as error:
                run.fail(error)
        if run.late_session is None:
            self.settle([run])
        return run.settled

    def _write_in(self, connection: Connection, run: Run) -> tuple[Written, set[str]]:
        """Write the outcome in the handler's transaction.
        Raises _Unwritten: an error of the engine's own statements is not the handler's failure.
        """
        try:
            connection.exec_driver_sql(f"{end_silent()}; {_BEGIN}")
            look.asked(connection)
            written = self._write(connection, [run])
            connection.exec_driver_sql(_DONE)
        except DBAPIError as error:
            if is_locked(error):
                connection.exec_driver_sql(_UNDO)
                raise _HeldUp from error
            if takes_no_writes(error.orig) and not error.connection_invalidated:
                self._refuse_read_only(connection)
            raise _Unwritten from error
        return written, look.asked(connection)

    def _refuse_read_only(self, connection: Connection) -> None:
        """Raise _WroteNothing, because the handler has made its transaction read-only, or CeleriacError if it had
        written before. Where every transaction is read-only, the connection counts as lost.
        """
        connection.exec_driver_sql(_UNDO)
        if connection.exec_driver_sql(_HAS_WRITTEN).scalar_one():
            raise CeleriacError(
                "a handler made the transaction of self.session read-only after it had written: its outcome cannot be "
                "written there"
            )
        raise _WroteNothing

    def _lose(self, run: Run, error: BaseException | None) -> None:
        """Raise LeaseLost, unless the row shows that the commit succeeded and only its answer was lost.

        If Postgres stays away, the outcome waits for the next settle, which raises NotSettled if it must.
        """
        logger.warning(
            "What task %s wrote was not committed: %s", run.task.id, type(error).__name__ if run.secret else error
        )
        run.lose(error or _Unwritten())
        with suppress(DBAPIError):
            written = retry_while_away(partial(self._settle, [run], again=True), "release")
            run.settled = True
            if not written.mine:
                return
        raise LeaseLost(f"task {run.task.id} runs again: its writes were not committed")

    def _tell_refused(self, runs: Sequence[Run]) -> None:
        for run in runs:
            COUNTERS.count(1, "fence_refusals_total", run.task.role, "settle")
            lines.refused(run.task)

    def _tell(self, follow_ups: Sequence[NewTask]) -> None:
        if follow_ups:
            self.on_enqueued({task.lane for task in follow_ups})
