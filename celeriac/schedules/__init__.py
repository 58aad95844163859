"""Schedules turn instants into tasks, passes and sweeps. A beat config imports `batcher`, `sweeping` and `enqueuing`
from here.
"""

from celeriac.schedules.beat import PassesAndSweeps, Scheduler
from celeriac.schedules.listed import batcher, enqueuing, sweeping

__all__ = ["PassesAndSweeps", "Scheduler", "batcher", "enqueuing", "sweeping"]
