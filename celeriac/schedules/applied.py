"""Call the listeners on an entry of Celery's timetable as it comes due, and keep what they add to the call in its row.

Cron monitors replace `Scheduler.apply_entry`, and tracers listen to the sending of a call; but the tick writes the row
itself.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from celery import signals
from celery.beat import ScheduleEntry
from celery.beat import Scheduler as CelerysScheduler

from celeriac.run import originals
from celeriac.schedules.celerys import original
from celeriac.schedules.decide import PlannedJob, call_of
from celeriac.seam.producer import headers_of
from celeriac.store.failures import log_error

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)


class Applied:
    """Applies entries of `beat_schedule` as Celery's beat does, up to where a message would be sent."""

    def __init__(self, app: Celeriac, scheduler: CelerysScheduler) -> None:
        self.app, self.scheduler = app, scheduler

    def headers(self, job: PlannedJob) -> Any:
        """Return the headers of an instant's row; None if its entry has neither listeners nor options.

        As in Celery, an error is logged, and only the listeners' additions are lost.
        """
        said = original(self.app.conf, job.name)
        options = _of_messages((said or {}).get("options"))
        if said is None or not (options or self._is_heard()):
            return None
        args, _ = call_of(job.options)
        entry = ScheduleEntry(
            app=self.app, name=job.name, task=job.target, schedule=said.get("schedule"), args=tuple(args),
            kwargs=dict(job.kwargs), options=options, relative=bool(said.get("relative")),
        )  # fmt: skip
        try:
            return headers_of(self.app, lambda producer: self.scheduler.apply_entry(entry, producer=producer))
        except Exception as error:
            log_error(logger, error, "Schedule %r runs; a listener to its entry failed", job.name)
            return None

    def _is_heard(self) -> bool:
        listened = bool(signals.before_task_publish.receivers or signals.after_task_publish.receivers)
        return listened or not (originals.apply_entry_is_celerys() and self.app.sends_straight())


def _of_messages(options: Any) -> dict[str, Any]:
    """Return the options that concern the message alone; the row has the others from its schedule."""
    return {name: dict(options[name]) for name in ("headers",) if (options or {}).get(name)}
