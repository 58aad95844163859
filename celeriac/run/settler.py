"""Settle runs: outcome, follow-ups and the handler's own writes in one transaction, then the wake-ups they call for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from celeriac.counters import COUNTERS
from celeriac.enqueue import outbox
from celeriac.enqueue.rows import NewTask
from celeriac.errors import LeaseLost, NotSettled
from celeriac.operate.cancel import cancel_all
from celeriac.run import coroutines, lease, lines
from celeriac.run.run import Run
from celeriac.run.sessions import HandlersSession
from celeriac.settle.outcome import LOST, is_plain
from celeriac.settle.write import settle
from celeriac.store import look
from celeriac.store.connections import Database, end_silent
from celeriac.store.failures import is_gone, is_locked, is_retryable, retry_deadlocks, retry_while_away

logger = logging.getLogger(__name__)


def _are_simple(runs: Sequence[Run]) -> bool:
    """Return whether one statement writes all outcomes:
    with several, the first might count although a later is refused.
    """
    kinds = {is_plain(run.outcome) for run in runs if run.outcome is not None}
    return len(kinds) == 1 and all(map(_is_simple, runs))


def _is_simple(run: Run) -> bool:
    """Return whether nothing but its row has to be committed with it."""
    return not (run.follow_ups or run.tombstones or run.outcome is None or run.outcome.status == LOST)


def _parts(run: Run) -> list[NewTask]:
    """Return what it has enqueued of its workflow: its links, and its handler's tasks."""
    return [task for task in run.follow_ups if task.workflow is not None]


class _Unwritten(Exception):
    """Postgres refused an outcome; the cause of this error says why."""


class _HeldUp(Exception):
    """Somebody has locked rows that an outcome concerns; the session is as before."""


#: How long (seconds) an outcome waits for somebody else's lock before it is left to be written later.
PATIENCE = 0.5

#: A savepoint around an outcome in a handler's session: a lock that is not granted undoes the outcome alone.
_BEGIN = f"SAVEPOINT celeriac_settle; SET LOCAL lock_timeout = '{PATIENCE * 1000:.0f} ms'"
_UNDO = "ROLLBACK TO SAVEPOINT celeriac_settle"

#: The handler's own lock_timeout applied until its outcome; its COMMIT waits by the server's default.
_DONE = "RELEASE SAVEPOINT celeriac_settle; SET LOCAL lock_timeout TO DEFAULT"


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
        written = retry_while_away(lambda: retry_deadlocks(lambda: self._settle(runs)), "settle")
        for run in runs:
            run.settled, run.became = True, written.mine.get(run.task.id)
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
        """Write these outcomes. If they were sent before, they may have been committed although no answer came."""
        again = again or any(run.said for run in runs)
        for run in runs:
            run.said = True
        begun = self.database.statement() if _are_simple(runs) else self.database.transaction()
        with COUNTERS.timing("sql_seconds", "settle"), begun as connection:
            return self._write(connection, runs, again=again)

    def _write(self, connection: Connection, runs: Sequence[Run], *, again: bool = False) -> Written:
        asked = lease.asked_to_stop(connection, [run.task for run in runs if run.follow_ups and _parts(run)])
        outcomes = [run.outcome for run in runs if run.outcome is not None]
        follow_ups = {run.task.id: run.follow_ups for run in runs if run.follow_ups}
        tombstones = {run.task.id: run.tombstones for run in runs if run.tombstones}
        refused: list[int] = []
        mine = settle(
            connection, outcomes, self.by, again=again, follow_ups=follow_ups, tombstones=tombstones, refused=refused
        )
        # What was cancelled has no successors, whether it heard of that in time or had ended before.
        stopped = {run.task.id: _parts(run) for run in runs if run.task.id in asked & mine.keys()} if asked else {}
        if ids := [task.task_id for parts in stopped.values() for task in parts]:
            outbox.drop(connection, ids, list(stopped))
            cancel_all(connection, ids, by=self.by, why="what it follows was cancelled", parents=list(stopped))
        return Written(mine, [task for i, tasks in follow_ups.items() if i in mine for task in tasks], refused)

    def settle_with_session(self, run: Run, session: HandlersSession) -> None:
        """Commit the handler's writes with the outcome, or, if the row is no longer this run's, not at all.

        An error of the commit is the attempt's error: it propagates, and the tracer records the failure. Raises
        LeaseLost, so that the task runs again, if Postgres went away, ended the transaction for another's sake, or cut
        the COMMIT short by a limit on statements or locks. If somebody has locked the rows concerned, the session stays
        open as `run.late_session`, for `settle_late`.
        """
        try:
            written, keys = session.within(lambda: self._commit_with(run, session))
        except _HeldUp:
            run.opened, run.late_session = None, session
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
        """A refused settle leaves its event in a transaction of its own: this one goes with the handler's writes."""
        session.flush()
        session.refuse_ended()
        session.is_settling = True
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
            raise _Unwritten from error
        return written, look.asked(connection)

    def _lose(self, run: Run, error: BaseException | None) -> None:
        """Raise LeaseLost, unless the row says that the commit was done and only its answer was lost.

        If Postgres stays away, the outcome waits for the next settle, which raises NotSettled if it must.
        """
        logger.warning(
            "What task %s wrote was not committed: %s", run.task.id, type(error).__name__ if run.secret else error
        )
        run.lose(error or _Unwritten())
        with suppress(DBAPIError):
            written = retry_while_away(lambda: retry_deadlocks(lambda: self._settle([run], again=True)), "release")
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
