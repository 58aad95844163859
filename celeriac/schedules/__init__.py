"""Instants → tasks, passes and sweeps. A beat config takes `batcher`, `sweeping` and `enqueuing` from here."""

from celeriac.schedules.beat import Scheduler
from celeriac.schedules.listed import batcher, enqueuing, sweeping

__all__ = ["Scheduler", "batcher", "enqueuing", "sweeping"]
