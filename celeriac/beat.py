"""Beat on rows: `celery -A … beat` runs passes and sweeps when `scheduled_jobs` says so.

Several beats share the work: a due schedule is locked, advanced and committed by one of them, then run by it. What
runs here is a safety net (the next tick repeats it), so a beat that dies after the commit costs one period.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from celery.beat import Scheduler as StockScheduler

from celeriac.database import is_gone
from celeriac.errors import ConfigurationError
from celeriac.sweeps import SWEEPS, sweep
from celeriac.verbs import tick

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

#: Beat looks at least this often (seconds), so that a change in SQL takes effect soon.
LOOK_EVERY = 1.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """What to run every so many seconds."""

    name: str
    every: float
    act: Callable[[Celeriac], int]


def batcher(role: str, every: float | None = None) -> Callable[[Celeriac], Schedule]:
    """The pass of one role; `every` defaults to the role's own."""

    def schedule(app: Celeriac) -> Schedule:
        declared = app.roles.get(role)
        if declared is None:
            raise ConfigurationError(f"a schedule names the role {role!r}, which no code declares")
        return Schedule(f"batcher {role}", every or declared.role.every, lambda app: app.dispatch(role))

    return schedule


def sweeping(name: str, every: float | None = None) -> Callable[[Celeriac], Schedule]:
    """One sweep; `every` defaults to `CELERIAC_SWEEP_INTERVAL_MS`."""
    if name not in SWEEPS:
        raise ConfigurationError(f"there is no sweep {name!r}; there are: {', '.join(SWEEPS)}")
    return lambda app: Schedule(f"sweep {name}", every or app.settings.sweep_interval, lambda app: sweep(app, name))


def schedules(app: Celeriac) -> dict[str, Schedule]:
    """What the app lists, and a pass for each declared role and every sweep it does not list."""
    listed = [make(app) for make in app.schedules]
    usual = [batcher(d.role.name)(app) for d in app.roles.all()] + [sweeping(name)(app) for name in SWEEPS]
    return {s.name: s for s in [*usual, *listed]}


class Scheduler(StockScheduler):
    """Celery's service drives it: `tick()` returns how long to sleep."""

    app: Celeriac

    def __init__(self, app: Celeriac, *args: Any, **kwargs: Any) -> None:
        self.jobs: dict[str, Schedule] = {}
        super().__init__(app, *args, **kwargs)

    def setup_schedule(self) -> None:
        self.jobs = schedules(self.app)
        with self.app.database.transaction() as connection:
            tick.install(connection, {s.name: s.every for s in self.jobs.values()})
        self.app.register_roles()

    def tick(self, *_: Any, **__: Any) -> float:
        """Never raises for what goes away and comes back: an exception out of here ends beat."""
        try:
            for name in self._due():
                self._run(self.jobs[name])
            return self._seconds_to_next()
        except Exception as error:
            level = logging.WARNING if is_gone(error) else logging.ERROR
            logger.log(level, "A tick failed; the next one is in %g s", LOOK_EVERY, exc_info=not is_gone(error))
            return LOOK_EVERY

    def _due(self) -> list[str]:
        with self.app.database.transaction() as connection:
            return tick.due(connection, list(self.jobs))

    def _run(self, schedule: Schedule) -> None:
        try:
            done = schedule.act(self.app)
        except Exception:
            logger.exception("%s failed; it runs again in %g s", schedule.name, schedule.every)
        else:
            logger.log(logging.INFO if done else logging.DEBUG, "%s: %d", schedule.name, done)

    def _seconds_to_next(self) -> float:
        with self.app.database.statement() as connection:
            seconds = tick.seconds_to_next(connection, list(self.jobs))
        return LOOK_EVERY if seconds is None else min(seconds, LOOK_EVERY)

    def should_sync(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to write: the rows are the schedule."""

    @property
    def info(self) -> str:
        return f"    . schedules -> scheduled_jobs, {len(self.jobs)} of this app's"
