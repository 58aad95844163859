"""The timetable: the schedules of one app, installed and ticked. `beat` drives it; it works without one as well."""

from __future__ import annotations

import logging
import os
import socket
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from psycopg2.errors import LockNotAvailable
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from celeriac import signals
from celeriac.enqueue.insert import enqueue
from celeriac.enqueue.rows import Receipt
from celeriac.errors import CeleriacError, ConfigurationError, NoAnswer, NotReady
from celeriac.insights.tasks import counting
from celeriac.repair import SWEEPS, sweep
from celeriac.run.outcomes import LONGEST_ERROR, described
from celeriac.run.redaction import of_name
from celeriac.schedules import tick, written
from celeriac.schedules.arguments import task_of
from celeriac.schedules.decide import Plan, PlannedJob, call_of, decide
from celeriac.schedules.listed import entries
from celeriac.store import patience
from celeriac.store.connections import Database
from celeriac.store.failures import is_gone, log_error
from celeriac.store.ids import instants_id
from celeriac.store.messages import quoted
from celeriac.store.redact import Secrets

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

#: Seconds that a schedule is left alone after an error of Postgres.
REST = 1.0


@dataclass(frozen=True, slots=True)
class Ticked:
    """A schedule that was due. `act`: beat's own work, a pass or a sweep. `late_by`: seconds."""

    job: PlannedJob
    plan: Plan
    late_by: float
    act: Callable[[], int] | None = None


@dataclass(frozen=True, slots=True)
class RunNow:
    """The result of running a schedule now. `result`: the task's id, or what a pass or sweep did.

    `ran` is False if the schedule's last task is unfinished and may not overlap: `result` is that one's id.
    """

    result: str
    ran: bool = True


class Timetable:
    """The timetable. Call `tick` until it returns None: each call takes one due schedule in its own transaction. So a
    schedule that cannot run neither stops nor undoes the others, and several beats share the due ones.
    """

    def __init__(
        self, app: Celeriac, headers: Callable[[PlannedJob], Any] = lambda _: None, *, celerys: bool = True
    ) -> None:
        """`headers`: returns the headers of the rows of a schedule's instant. `celerys`: as in `entries`."""
        self.app = app
        self.celerys = celerys
        self.headers = headers
        self.owner = f"beat {app.main}"
        self._rests: dict[int, float] = {}

    @property
    def beat_id(self) -> str:
        return f"{socket.gethostname()}:{os.getpid()}"

    def install(self) -> int:
        """Write the beat config and return how many entries it has.

        Raises DBAPIError (LockNotAvailable) if somebody's open transaction locks one of its rows.
        """
        listed = list(entries(self.app, celerys=self.celerys).values())
        with self.app.database.transaction(patience=tick.PATIENCE) as connection:
            done = written.install(
                connection, listed, self.owner, int(self.app.settings.deployment), self.app.process_name
            )
        for name in done.foreign:
            logger.error("The schedule %r is in the beat config, but one of that name belongs to somebody else", name)
        for name, why in done.refused.items():
            logger.error("The schedule %r of the beat config was left out: %s", name, why)
        if done.shared:
            logger.warning("Left to another beat, which has to run: %s", ", ".join(done.shared))
        return len(listed)

    def tick(self, but: Collection[int] = ()) -> Ticked | None:
        """Run one due schedule. `but`: the ids of schedules that have had their turn and wait for the others to have
        theirs.

        One with an error of Postgres rests for `REST`. Raises errors that mean Postgres itself is away or broken.
        """
        ticked = self._tick([*but, *self._resting()])
        if ticked is not None and ticked.job.kind == "task" and ticked.plan.run:
            self.app.kick([ticked.job.target])
        return ticked

    def _tick(self, but: Collection[int]) -> Ticked | None:
        job: PlannedJob | None = None
        try:
            with self.app.database.transaction(patience=self._patience()) as connection:
                taken = tick.take(connection, self.owner, but)
                if taken is None:
                    return None
                job, now = taken
                return self._run(connection, job, now)
        except SQLAlchemyError as error:
            if job is None or is_gone(error):
                raise
            return self._let_rest(job, error)

    def _let_rest(self, job: PlannedJob, error: SQLAlchemyError) -> Ticked:
        if isinstance(getattr(error, "orig", None), LockNotAvailable):
            level = logging.DEBUG if self._rests else logging.WARNING
            logger.log(level, "Schedule %r waits for an open transaction that has locked what it needs", job.name)
        else:
            log_error(logger, error, "Schedule %r could not run; it is tried again in %g s", job.name, REST)
        self._rests[job.id] = time.monotonic() + REST
        return Ticked(job, Plan(job.next_run_at), 0.0)

    def _resting(self) -> list[int]:
        self._rests = {job: until for job, until in self._rests.items() if until > time.monotonic()}
        return list(self._rests)

    def held(self) -> Iterator[tuple[Ticked, float]]:
        """Yield the passes and sweeps whose rows somebody's open transaction has locked for long, each with the seconds
        until its next turn. Nothing of them is written.
        """
        with self.app.database.statement() as connection:
            jobs = tick.held(connection, self.owner)
        for job, now in jobs:
            plan = decide(job, now)
            late_by = (now - job.next_run_at).total_seconds()
            yield Ticked(job, plan, late_by, self._act(job)), (plan.next_run_at - now).total_seconds()

    def _patience(self) -> float:
        """Return how long (seconds) a tick waits for a lock: hardly, while a schedule rests that has met one."""
        return patience.HURRIED if self._rests else tick.PATIENCE

    def seconds_to_next(self) -> float | None:
        with self.app.database.statement() as connection:
            return tick.seconds_to_next(connection, self.owner, self._resting())

    def report(self, late_by: float) -> None:
        with self.app.database.statement() as connection:
            tick.report(connection, self.beat_id, socket.gethostname(), os.getpid(), late_by)

    def keep(self, job: PlannedJob, report: Mapping[str, Any]) -> None:
        """Record the report of a pass or sweep."""
        done = {**report, "by": self.app.process_name}
        with self.app.database.transaction(patience=tick.PATIENCE) as connection:
            written.keep_report(connection, job.name, done)
            if job.kind == "sweep":
                written.ran(connection, job.name, done)

    def leave(self) -> None:
        with self.app.database.statement() as connection:
            tick.leave(connection, self.beat_id)

    def _run(self, connection: Connection, job: PlannedJob, now: datetime) -> Ticked:
        try:
            due = decide(job, now)
            plan = self._without_overlap(connection, job, due)
            act = self._act(job) if job.kind != "task" and plan.run else None
            made = self._enqueue(connection, job, plan) if job.kind == "task" and plan.run else []
        except (SQLAlchemyError, NotReady, NoAnswer):
            raise
        except Exception as error:
            return self._quarantine(connection, job, error)
        tick.advance(connection, job, due, plan, [(one.task_id, one.is_new) for one in made])
        late_by = (now - plan.run[-1]).total_seconds() if plan.run else 0.0
        return Ticked(job, plan, late_by, act)

    def _quarantine(self, connection: Connection, job: PlannedJob, error: Exception) -> Ticked:
        """Quarantine the schedule. A refusal's message says what to do; other errors, such as in `lock_by`, are logged
        with their place. Both may quote the call.
        """
        refused = isinstance(error, CeleriacError)
        secrets = self._secrets(job)
        what = str(error) if refused else str(described(error))
        why = quoted(secrets.without(what, LONGEST_ERROR), LONGEST_ERROR)
        place = "" if refused else "\n" + secrets.without("".join(traceback.format_exception(error)))
        logger.error("Schedule %r cannot run and is left alone until it is changed: %s%s", job.name, why, place)
        tick.quarantine(connection, job, why)
        return Ticked(job, Plan(job.next_run_at), 0.0)

    def _secrets(self, job: PlannedJob) -> Secrets:
        """Return the values that its role keeps secret, because errors may quote them."""
        sensitive = of_name(self.app.roles, job.target) if job.kind == "task" else None
        return Secrets(()) if sensitive is None else sensitive.values(list(call_of(job.options)[0]), job.kwargs)

    def _without_overlap(self, connection: Connection, job: PlannedJob, plan: Plan) -> Plan:
        if job.kind != "task" or job.overlap == "allow" or not plan.run:
            return plan
        unfinished = job.last_task_id is not None and tick.is_unfinished(connection, job.last_task_id)
        run = () if unfinished else plan.run[-1:]
        return Plan(plan.next_run_at, run, plan.skipped + len(plan.run) - len(run))

    def _enqueue(self, connection: Connection, job: PlannedJob, plan: Plan) -> list[Receipt]:
        """Enqueue a task for each instant, with an id only that instant can have, so that there is no second one."""
        return self._put(connection, job, [instants_id(job.name, instant) for instant in plan.run])

    def _put(self, connection: Connection, job: PlannedJob, ids: list[str]) -> list[Receipt]:
        by, limit = f"schedule {job.name}", self.app.settings.max_argument_bytes
        made = [
            task_of(self.app.role_between_releases, limit, job, task_id, enqueued_by=by, headers=self.headers(job))
            for task_id in ids
        ]
        return enqueue(connection, made)

    def _act(self, job: PlannedJob) -> Callable[[], int]:
        app, target = self.app, job.target
        if job.kind == "pass":
            return lambda: _pass(app.dispatch, app.database, target)
        if target not in SWEEPS:
            raise ConfigurationError(f"there is no sweep {target!r}; there are: {', '.join(SWEEPS)}")
        return lambda: sweep(app, target)

    def run_now(self, name: str | int) -> RunNow:
        """Run a schedule once, apart from its instants, even if it is switched off.

        If its last task is unfinished and may not overlap with another, none is enqueued and that one is returned.
        Raises CeleriacError if there is no such schedule, and DBAPIError (LockNotAvailable) if somebody's open
        transaction has its row, or the task's unique key.
        """
        with self.app.database.transaction(patience=tick.PATIENCE) as connection:
            row = written.find(connection, name, lock=True)
            if row is None:
                raise CeleriacError(f"there is no schedule {name!r}; `celeriac schedules list` tells which there are")
            job = PlannedJob(*(row[name] for name in PlannedJob.__slots__))
            if job.kind == "task":
                done = self._enqueue_now(connection, job)
        if job.kind != "task":
            return RunNow(f"{job.kind} {job.target}: {self._act(job)()}")
        self.app.kick([job.target])
        return done

    def _enqueue_now(self, connection: Connection, job: PlannedJob) -> RunNow:
        if job.overlap == "skip" and job.last_task_id and tick.is_unfinished(connection, job.last_task_id):
            return RunNow(job.last_task_id, ran=False)
        task_id = self._put(connection, job, [f"{job.name}@{uuid4()}"])[-1].task_id
        tick.remember(connection, job, task_id)
        return RunNow(task_id)


def _pass(dispatch: Callable[[str], int], database: Database, role: str) -> int:
    """Run a pass; return the number of tasks published. The tasks left are counted only if somebody listens for this
    role.
    """
    scheduled = dispatch(role)
    if signals.pass_finished.has_listeners(role):
        with database.reading() as connection:
            left = counting.due(connection, role)
        signals.pass_finished.send(sender=role, role=role, scheduled=scheduled, pending=scheduled + left)
    return scheduled
