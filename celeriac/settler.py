"""Settles runs: outcome, follow-ups and the handler's own writes in one transaction, then the kicks they call for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from celeriac.database import Database, end_silent, is_gone, outlasting, past_deadlocks
from celeriac.errors import NotSettled
from celeriac.running import Run
from celeriac.verbs.enqueue import NewTask, enqueue
from celeriac.verbs.settle import settle


class Settler:
    """`on_enqueued` hears of the roles of committed follow-ups."""

    def __init__(self, database: Database, by: str, on_enqueued: Callable[[Iterable[str]], None]) -> None:
        self.database = database
        self.by = by
        self.on_enqueued = on_enqueued

    def settle(self, runs: Sequence[Run]) -> None:
        """Writes the outcome of each that has one and is not settled yet; a refused one's follow-ups are dropped.

        Raises NotSettled if Postgres stays away: whoever calls must then let the runs be lost.
        """
        open_runs = [run for run in runs if run.outcome is not None and not run.settled]
        if not open_runs:
            return
        try:
            self._settle_together(open_runs)
        except DBAPIError as error:
            if is_gone(error):
                raise NotSettled(f"{len(open_runs)} outcome(s) could not be written: Postgres stayed away") from error
            if len(open_runs) == 1:
                raise
            self._settle_apart(open_runs)

    def _settle_together(self, runs: Sequence[Run]) -> None:
        attempts = count()
        follow_ups = outlasting(lambda: past_deadlocks(lambda: self._settle(runs, again=next(attempts) > 0)), "settle")
        for run in runs:
            run.settled = True
        self._tell(follow_ups)

    def _settle_apart(self, runs: Sequence[Run]) -> None:
        """Postgres refused one of them: the others' outcomes count. Raises what it said of the last it refused."""
        refused: Exception | None = None
        for run in runs:
            try:
                self.settle([run])
            except (DBAPIError, NotSettled) as error:
                refused = error
        if refused is not None:
            raise refused

    def _settle(self, runs: Sequence[Run], *, again: bool) -> list[NewTask]:
        keyed = any(run.task.lock_key is not None or run.follow_ups for run in runs)
        with self.database.transaction() if keyed else self.database.statement() as connection:
            return self._write(connection, runs, again=again)[0]

    def _write(
        self, connection: Connection, runs: Sequence[Run], *, again: bool = False
    ) -> tuple[list[NewTask], set[int]]:
        outcomes = [run.outcome for run in runs if run.outcome is not None]
        mine = settle(connection, outcomes, self.by, again=again)
        follow_ups = [task for run in runs if run.task.id in mine for task in run.follow_ups]
        if follow_ups:
            enqueue(connection, follow_ups)
        return follow_ups, mine

    def settle_with_session(self, run: Run, session: Session) -> None:
        """The handler's writes commit with the outcome, or, if the row is no longer this run's, not at all.

        An error of its commit is the attempt's error: it propagates, and the tracer records the failure.
        """
        try:
            session.flush()
            connection = session.connection()
            connection.exec_driver_sql(end_silent())
            follow_ups, mine = self._write(connection, [run])
            # A refused settle leaves its event in a transaction of its own: this one goes with the handler's writes.
            session.commit() if mine else session.rollback()
        except BaseException:
            run.outcome = None
            run.drop_session()
            raise
        run.drop_session()
        if not mine:
            self.settle([run])
        run.settled = True
        self._tell(follow_ups)

    def _tell(self, follow_ups: Sequence[NewTask]) -> None:
        if follow_ups:
            self.on_enqueued({task.role for task in follow_ups})
