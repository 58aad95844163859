"""Celery with SQL roots: a task is a row in Postgres, a Celery message only a ticket (a lease) for rows.

    enqueue → select → claim → (publish) → start → (run) → settle
                ▲                                  │
                └── promote ◀── release, rescue ◀──┘

Each stage has a folder: `enqueue`, `dispatch` (select, claim, publish), `run`, `settle`. `schedules` and `repair` act
by themselves, `operate` acts for operators, and `insights` only reads. Below them all are `roles` (what is declared)
and `store` (what is stored); `seam` is the connection to Celery, `worker` the process.

Verbs are the functions that write SQL about tasks: they take a SQLAlchemy connection and leave the transaction to their
caller. Times are the database's.
"""

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
    NoAnswer,
    NotAllowed,
    NotReady,
    NotSupported,
    Permanent,
    Snooze,
    TaskCancelled,
    Unknown,
    UnknownRole,
)
from celeriac.roles.keys import ONE, Hashed
from celeriac.roles.role import days
from celeriac.roles.rules import FOREVER
from celeriac.seam.task import Enqueued, Task
from celeriac.settings import Settings
from celeriac.version import __version__

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
    "Hashed",
    "IllegalMove",
    "LeaseLost",
    "NoAnswer",
    "NotAllowed",
    "NotReady",
    "NotSupported",
    "Permanent",
    "Settings",
    "Snooze",
    "Task",
    "TaskCancelled",
    "Unknown",
    "UnknownRole",
    "__version__",
    "days",
]
