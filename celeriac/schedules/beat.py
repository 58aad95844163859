"""Beat on rows: `celeriac.schedules.timetable` decides and commits, Celery's service drives it.

Tasks are enqueued in the tick's own transaction. Passes and sweeps run here, in threads beside the ticks, so that a
long one delays nothing. The next instant repeats each of them, so if a beat dies, one period is lost.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click
from celery.apps.beat import Beat as StockBeat
from celery.beat import Scheduler as StockScheduler
from celery.beat import Service as StockService
from celery.platforms import EX_FAILURE
from sqlalchemy.exc import DBAPIError

from celeriac import above, logged
from celeriac.counters import COUNTERS
from celeriac.errors import ConfigurationError
from celeriac.schedules.applied import Applied
from celeriac.schedules.decide import PlannedJob
from celeriac.schedules.listed import entries
from celeriac.schedules.timetable import Ticked, Timetable
from celeriac.seam.configuration import beside, scheduler_class
from celeriac.store.failures import RETRY_EVERY, Away, in_a_line, is_gone, is_locked, log_error
from celeriac.store.migrate import unapplied
from celeriac.store.patience import recurring

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

#: Beat polls at least this often (seconds), so that a change in SQL takes effect soon; and reports that it lives.
LOOK_EVERY = 1.0

#: So soon (seconds) it polls again for a due schedule that another beat, or an open transaction, has locked.
LOOK_AGAIN = 0.01

#: So soon (seconds) it reads the beat config again after meeting somebody's lock.
INSTALL_AGAIN = 5.0

#: Passes and sweeps at once; when beat ends it waits for them.
ACTS = 4


class Acts:
    """Passes and sweeps beside the ticks, one at a time of each schedule. `keep` writes each one's report."""

    def __init__(self, keep: Callable[[PlannedJob, Mapping[str, Any]], None]) -> None:
        self.keep = keep
        self.threads = ThreadPoolExecutor(ACTS, thread_name_prefix="celeriac-beat")
        self.running: dict[str, Future[None]] = {}

    def start(self, ticked: Ticked) -> None:
        name = ticked.job.name
        last = self.running.get(name)
        if last is not None and not last.done():
            logger.debug("%s is still under way", name)
            return
        self.running[name] = self.threads.submit(self._run, ticked)

    def _run(self, ticked: Ticked) -> None:
        assert ticked.act is not None
        began, job = time.monotonic(), ticked.job
        try:
            done = ticked.act()
        except Exception as error:
            log_error(logger, error, "%s failed; it runs again at %s", job.name, ticked.plan.next_run_at)
            report: dict[str, Any] = {"error": in_a_line(error)[:500]}
        else:
            logger.log(logging.INFO if done else logging.DEBUG, "%s: %d", job.name, done)
            report = {"done": done}
        self._tell(job, report | {"seconds": round(time.monotonic() - began, 3)})

    def _tell(self, job: PlannedJob, report: dict[str, Any]) -> None:
        try:
            self.keep(job, report)
        except Exception as error:
            logger.warning("What %s came to could not be written: %s", job.name, error)

    def under_way(self) -> int:
        return sum(not future.done() for future in list(self.running.values()))

    def close(self) -> None:
        self.threads.shutdown(wait=True, cancel_futures=True)


class Service(StockService):
    """Drives the scheduler, whosever it is; its end without a schema is a failure."""

    scheduler_cls: Any

    def start(self, embedded_process: bool = False) -> None:
        for note in beside(self.scheduler_cls):
            logger.warning(note)
        super().start(embedded_process)
        if getattr(self.scheduler, "refused", False):
            sys.exit(EX_FAILURE)


class Beat(StockBeat):
    """`celery beat`."""

    Service = Service
    app: Celeriac
    quiet: bool
    scheduler_cls: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.quiet = self.quiet or self.app.settings.log_format == "json"  # a banner is no JSON object

    def init_loader(self) -> None:
        """Load the app's tasks. Raises ClickException, of one line, for a configuration that cannot work."""
        try:
            super().init_loader()
            scheduler = scheduler_class(self.scheduler_cls)
            if isinstance(scheduler, type) and issubclass(scheduler, Scheduler):
                scheduler.check(self.app)
        except ConfigurationError as error:
            raise click.ClickException(str(error)) from error


class Scheduler(StockScheduler):
    """The scheduler, driven by Celery's service: `tick()` returns how long to sleep (seconds)."""

    app: Celeriac

    #: True if this scheduler also runs Celery's `beat_schedule`, unless the configuration names another scheduler for
    #: it.
    keeps_celerys = True

    def __init__(self, app: Celeriac, *args: Any, **kwargs: Any) -> None:
        self.timetable = Timetable(app, Applied(app, self).headers, celerys=self.keeps_celerys)
        self.acts = Acts(self.timetable.keep)
        self.away = Away()
        self.installed = False
        self.install_at = -math.inf
        self.past_locks_at = -math.inf
        self.held_until: dict[str, float] = {}
        self.refused = False
        self.ticking = False
        self.closing = False
        self.reported = self.report_at = -math.inf
        self.ticks = 0
        self.ending = threading.Event()
        self.closed = threading.Event()
        self.late_by = 0.0
        self.is_watched = False
        #: The times (monotonic) at which its loop last advanced, and at which a tick last ended.
        self.moved_at = self.ticked_at = -math.inf
        super().__init__(app, *args, **kwargs)

    @classmethod
    def check(cls, app: Celeriac) -> None:
        """Check the servers' addresses and the beat config. Raises ConfigurationError."""
        _ = app.redis_url, app.database
        entries(app, celerys=cls.keeps_celerys)

    def setup_schedule(self) -> None:
        """Check the configuration, as Postgres may come later. Raises ConfigurationError."""
        self.check(self.app)
        for note in self.app.notes():
            logger.warning(note)

    def _entries(self) -> Mapping[str, Any]:
        """Return Celery's entries of `beat_schedule`, for readers at beat's start, such as cron monitors. They are only
        to be read: `app.add_periodic_task` adds and replaces until the first tick.
        """
        said = dict(self.app.conf.beat_schedule or {}) if self.keeps_celerys else {}
        return MappingProxyType({n: self.Entry(**{**entry, "name": n, "app": self.app}) for n, entry in said.items()})

    schedule = property(_entries)

    def _install(self) -> None:
        """Install the beat config. While somebody's open transaction locks a row of it, installed schedules run on."""
        if self.installed or time.monotonic() < self.install_at:
            return
        self._refuse_old_schema()
        try:
            logger.info("%d schedules in the beat config", self.timetable.install())
            self.app.register_roles(served=[])
            self.installed = True
        except DBAPIError as error:
            if not is_locked(error):
                raise
            self.install_at = time.monotonic() + INSTALL_AGAIN
            logger.warning(
                "The beat config waits for an open transaction that has the row of a schedule or a role; "
                "it is read again in %g s", INSTALL_AGAIN
            )  # fmt: skip

    def _be_watched(self) -> None:
        """Start the watch, and the port for figures if one is set, which is a layer above. Probes need no Postgres."""
        if self.is_watched:
            return
        from celeriac.schedules.watch import ScheduleWatch  # the worker's part, which an enqueuing app does not load

        self.is_watched = True
        ScheduleWatch(self).start()
        if self.app.settings.metrics_address:
            COUNTERS.turn(on=True)
            above.load(above.BEAT_PORT)(self).start()

    def _refuse_old_schema(self) -> None:
        """Refuse to start without the current schema: raises SystemExit after a one-line message."""
        try:
            with self.app.database.statement() as connection:
                missing = unapplied(connection, self.app.migrations)
            why = f"the schema lacks {', '.join(sorted(missing))}: run `celeriac migrate`" if missing else None
        except ConfigurationError as error:
            why = str(error)
        if why:
            logger.critical("Beat does not start: %s", why)
            self.refused = True
            raise SystemExit(EX_FAILURE)

    def tick(self, *_: Any, **__: Any) -> float:
        """Run one tick. Never raises for outages that pass: an exception out of here ends beat.

        Raises SystemExit once it was closed: the one that a signal's handler raises can get lost in a callback.
        """
        if self.closing:
            raise SystemExit
        self.ticking = True
        self.moved_at = time.monotonic()
        self._be_watched()
        try:
            with recurring():
                return self._tick()
        finally:
            self.ticking = False

    def _tick(self) -> float:
        try:
            self._install()
            self._report()  # first: it notes a gap, which a rescue of this round depends on
            self._round()
            self._run_past_locks()
            self.ticks += 1
            self.ticked_at = time.monotonic()
            return self._seconds_to_next()
        except Exception as error:
            if is_gone(error):
                self.away.say(error)
                return RETRY_EVERY
            if is_locked(error):
                logger.warning("Beat waits for an open transaction that has locked rows it writes")
                return LOOK_EVERY
            log_error(logger, error, "A tick failed; the next one is in %g s", LOOK_EVERY)
            return LOOK_EVERY

    def _round(self) -> None:
        """Run each due schedule once, so that one that makes up for a day of instants does not delay the others."""
        had_its_turn: list[int] = []
        while (ticked := self.timetable.tick(had_its_turn)) is not None:
            self.moved_at = time.monotonic()
            had_its_turn.append(ticked.job.id)
            self._ran(ticked)
            self._report()  # a round may be long

    def _run_past_locks(self) -> None:
        """Run passes and sweeps although somebody's open transaction has locked their rows: roles that only beat
        dispatches would stand still for as long as that is open.
        """
        now = time.monotonic()
        if now < self.past_locks_at:
            return
        self.past_locks_at = now + LOOK_EVERY
        for ticked, seconds in self.timetable.held():
            name = ticked.job.name
            if now < self.held_until.get(name, -math.inf):
                continue
            self.held_until[name] = now + max(seconds, LOOK_EVERY)
            logger.warning("%s runs although an open transaction has locked its schedule", name)
            self._start(ticked)

    def _ran(self, ticked: Ticked) -> None:
        if ticked.plan.run:
            self.late_by = ticked.late_by
            COUNTERS.count(1, "schedule_ticks_total", ticked.job.name)
            level = logging.INFO if ticked.act is None else logging.DEBUG
            fields = {"schedule": ticked.job.name, "target": ticked.job.target, "late_by": round(ticked.late_by, 3)}
            logger.log(level, "Schedule %r ran", ticked.job.name, extra=logged.of("schedule.tick", **fields))
        if ticked.act is not None:
            self._start(ticked)

    def _start(self, ticked: Ticked) -> None:
        if ticked.job.target == "rescue" and time.monotonic() - self.reported > 2 * LOOK_EVERY:
            logger.warning("The sweep %s is left out: a gap, if there was one, could not be noted", ticked.job.name)
        else:
            self.acts.start(ticked)

    def apply_async(self, entry: Any, producer: Any = None, **_: Any) -> Any:
        """Send an entry, called by Celery's `apply_entry`. The call ends at the `producer`."""
        task = self.app.tasks.get(entry.task)
        send = partial(self.app.send_task, entry.task) if task is None else task.apply_async
        return send(entry.args, entry.kwargs, producer=producer, **entry.options)

    def _report(self) -> None:
        """Report each second that it lives, and note a gap. Somebody's lock on that row stops no schedule."""
        if time.monotonic() < self.report_at:
            return
        try:
            self.timetable.report(self.late_by)
        except DBAPIError as error:
            if not is_locked(error):
                raise  # and the next tick reports before anything else
            logger.warning("Beat cannot report that it lives: an open transaction has locked its row")
        else:
            self.reported = time.monotonic()
        self.report_at = time.monotonic() + LOOK_EVERY

    def _seconds_to_next(self) -> float:
        seconds = self.timetable.seconds_to_next()
        return LOOK_EVERY if seconds is None else min(max(seconds, LOOK_AGAIN), LOOK_EVERY)

    def should_sync(self) -> bool:
        return False

    def close(self) -> None:
        """Stop the passes and sweeps. There is nothing to write: the rows are the schedule."""
        self.closing = True
        self.ending.set()
        if self.ticking:
            return
        self.acts.close()
        self.closed.set()
        if self.refused:
            return
        try:
            self.timetable.leave()
        except Exception as error:
            logger.warning("Beat could not report its end: %s", getattr(error, "orig", error))

    @property
    def info(self) -> str:
        return "    . schedules -> scheduled_jobs"


class PassesAndSweeps(Scheduler):
    """The scheduler beside another one that runs `beat_schedule`, so that none of its entries runs twice. Tasks in the
    app's own `schedules=` are enqueued here, because no other scheduler knows of them.
    """

    keeps_celerys = False
