"""Celery with SQL roots: a task is a row in Postgres, a Celery message only a ticket for rows."""

from celeriac.app import Celeriac
from celeriac.errors import (
    ArgumentsTooLarge,
    BadArguments,
    BadValue,
    CeleriacError,
    ConfigurationError,
    EnqueueRefused,
    IllegalMove,
    LeaseLost,
    NotSupported,
    Permanent,
    Snooze,
    TaskCancelled,
    Unknown,
    UnknownRole,
)
from celeriac.keys import ONE
from celeriac.roles import FOREVER, days
from celeriac.settings import Settings
from celeriac.task import Enqueued, Task

__all__ = [
    "FOREVER",
    "ONE",
    "ArgumentsTooLarge",
    "BadArguments",
    "BadValue",
    "Celeriac",
    "CeleriacError",
    "ConfigurationError",
    "EnqueueRefused",
    "Enqueued",
    "IllegalMove",
    "LeaseLost",
    "NotSupported",
    "Permanent",
    "Settings",
    "Snooze",
    "Task",
    "TaskCancelled",
    "Unknown",
    "UnknownRole",
    "days",
]
