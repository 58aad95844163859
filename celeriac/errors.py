"""Everything Celeriac raises on purpose.

CeleriacError
├── ConfigurationError      a setting, role or schedule is wrong; raised at start or import
│   └── BadExpression       when something is to run makes no sense, or never comes
├── EnqueueRefused          nothing was written
│   ├── UnknownRole         no code and no `roles` row declares it
│   ├── BadArguments        they do not fit the handler's signature
│   │   └── NotStorable     they are not JSON; also kombu's EncodeError
│   ├── ArgumentsTooLarge
│   ├── IdTaken             a task of another role, or with other arguments, has the id that was given
│   ├── SnapshotTooOld      the caller's transaction cannot see that a task with the id that was given has finished
│   ├── NotReady            Postgres does not answer, or lacks the schema; also Celery's OperationalError
│   ├── NotSupported        a part of Celery that cannot be done on rows, such as `purge`
│   └── NotAdopted          a message of plain Celery that becomes no task
├── TokenRefused            an API token was not made: its name is taken, or what it was to be is not possible
├── TokenLimited            the token's limits do not allow this call; nothing was written
├── Unknown                 no such task, role or account
├── BadValue                what an operator or a handler gave is out of bounds
├── IllegalMove             the life of the task does not allow it now; nothing was written
├── NotAllowed              the login to Postgres may not do it; nothing was written
├── NoAnswer                Postgres did not answer an enqueue in time: whether it was accepted is not known; also
│                           Celery's OperationalError
├── HandlerEnded            a handler ended by what is no Exception: its attempt's error
└── NotSettled              a finished task's outcome could not be written to Postgres in time

Raised by handlers, to say how their attempt ended:

Permanent                   fail now: no retry, no further round
TaskCancelled               raised *in* a running handler when somebody cancelled it
LeaseLost                   raised *in* a running handler whose row now belongs to somebody else
Snooze                      try later without burning an attempt (made by `self.snooze`)
"""

from __future__ import annotations

from celery.exceptions import Ignore, OperationalError
from kombu.exceptions import EncodeError


class CeleriacError(Exception):
    """The root of what Celeriac raises on purpose."""


class ConfigurationError(CeleriacError):
    """A setting, role or schedule is wrong; the message names it, its value and what would be right."""


class BadExpression(ConfigurationError):
    """An expression is wrong; the message says what is wrong and where, and gives an example that would be right."""


class EnqueueRefused(CeleriacError):
    """The task was not accepted, and nothing was written."""


class Contradiction(EnqueueRefused):
    """This code declares a role's keys in another way than the code that serves it, which may be the newer release."""


class UnknownRole(EnqueueRefused):
    """Neither this code nor the `roles` table declares the role."""


class BadArguments(EnqueueRefused, TypeError):
    """The arguments do not fit the handler's signature or are not JSON."""


class NotStorable(BadArguments, EncodeError):
    """The arguments are not JSON, or JSON that Postgres cannot store; the message says which part."""


class ArgumentsTooLarge(EnqueueRefused):
    """The arguments exceed `CELERIAC_MAX_ARGUMENT_BYTES`."""


class IdTaken(EnqueueRefused):
    """Another task has this id: one of another role, or with other arguments. The same one sent again is found."""


class SnapshotTooOld(EnqueueRefused):
    """A task with this id has finished since the caller's transaction began, which is not READ COMMITTED."""


class NotReady(EnqueueRefused, OperationalError):
    """Postgres does not answer, or lacks the schema; the message says what to run. `because`: Postgres' own error."""

    def __init__(self, message: str, because: Exception | None = None) -> None:
        super().__init__(message)
        self.because = because


class NoAnswer(CeleriacError, OperationalError):
    """Postgres did not answer an enqueue within `CELERIAC_ENQUEUE_TIMEOUT_MS`: it may have been accepted."""


class NotSupported(EnqueueRefused, NotImplementedError):
    """A part of Celery that cannot be done on rows, such as `purge`; refused before anything is half done."""


class NotAdopted(EnqueueRefused):
    """A plain Celery app's message that becomes no task; it is a dead letter."""


class TokenRefused(CeleriacError):
    """No API token was made; the message says what to change."""


class TokenLimited(CeleriacError):
    """The token's limits do not allow this call; the message says what it may enqueue. Nothing was written."""


class Unknown(CeleriacError, LookupError):
    """There is no such task, role or account (any more)."""


class BadValue(CeleriacError, ValueError):
    """A value is out of bounds; the message names it and what would be right. Nothing was written."""


class IllegalMove(CeleriacError):
    """The task's status does not allow this move now; the message says why, and nothing was written."""


class NotAllowed(CeleriacError):
    """The login to Postgres may not do this; the message says which one may. Nothing was written."""


class NotSettled(CeleriacError):
    """Postgres stayed away too long to take a finished task's outcome; the task will run again."""


class HandlerEnded(CeleriacError):
    """A handler raised something that is no Exception, such as `asyncio.CancelledError`: it is this error's cause."""


class Permanent(Exception):
    """Raise it in a handler: the task fails now, whatever retries it had left."""


class TaskCancelled(BaseException):
    """Somebody cancelled the running task. Clean up and let it pass."""


class LeaseLost(BaseException):
    """The row was rescued or handed to another worker; whatever this one does is refused."""


class Snooze(Ignore):
    """The attempt did not count; the task is due again after `seconds`."""

    def __init__(self, seconds: float, why: str = "") -> None:
        super().__init__(f"snoozed for {seconds:g} s{': ' + why if why else ''}")
        self.seconds = seconds
        self.why = why
