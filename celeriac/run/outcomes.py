"""Decide a task's outcome from how its attempt ended: pure functions of the task, its role and what happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from celery.exceptions import TimeLimitExceeded

from celeriac.errors import LeaseLost, Permanent
from celeriac.roles.role import Role
from celeriac.run.outside import is_from_outside
from celeriac.settle.outcome import LOST, REPLACED, Outcome, Started, Success
from celeriac.settle.retries import Again, Attempt, Failed, after_failure, after_timeout
from celeriac.store import states
from celeriac.store.failures import is_restart, is_turned_away
from celeriac.store.redact import MARGIN
from celeriac.store.states import STAYS


@dataclass(frozen=True, slots=True)
class RetryAsked:
    """The parameters of a `retry()` or an autoretry. Celery would send the task again; here the settle writes them."""

    delay: float | None
    at: str | None
    args: list[Any] | None
    kwargs: dict[str, Any] | None
    queue: str | None = None


_AT_ONCE = RetryAsked(delay=0.0, at=None, args=None, kwargs=None)


def ignored(task: Started, role: Role, state: dict[str, Any] | None) -> Outcome:
    """Return the outcome of an ignored task: it has no result, and keeps the last `state` that its handler recorded."""
    if state is None:
        return Success(task, None, role.keeps_successes)
    return _ended(task, states.COMPLETED, keep=role.keeps_successes, progress={**state, STAYS: True})


def replaced(task: Started) -> Outcome:
    """Return the outcome of a task that another one replaces under the same id."""
    return _ended(task, states.COMPLETED, kind=REPLACED, keep=False)


def excused(task: Started, error: BaseException) -> Outcome | None:
    """Return the outcome for an error that only means that Postgres was away or refused connections; None for any
    other.
    """
    if is_turned_away(error):
        return turned_away(task, error)
    return lost(task, error) if is_restart(error) else None


def retried(task: Started, error: BaseException | None, asked: RetryAsked | None = None) -> Outcome:
    """Return the outcome of a `retry()` or autoretry: another attempt in the round, after the delay that it asked for
    (`celeriac/seam/autoretry.py`: by the role's backoff).
    """
    asked = asked or _AT_ONCE
    return Outcome(
        task=task, status=states.PENDING, kind="retry", error=described(error),
        delay=asked.delay or 0.0, at=asked.at, args=asked.args, kwargs=asked.kwargs,
        retry_count=task.retry_count + 1, tries=task.tries, queue=asked.queue,
    )  # fmt: skip


def failed(
    task: Started, role: Role, error: BaseException, encoded_error: Any = None, *, is_hopeless: bool = False
) -> Outcome:
    """Return the outcome when the round is used up, or the error is permanent: `Permanent`, or in `dont_retry_for`.

    `encoded_error`: the error as JSON, for whoever fetches the result. `is_hopeless`: another attempt would fail too.
    """
    permanent = is_hopeless or isinstance(error, (Permanent, *role.dont_retry_for))
    verdict = after_failure(_attempt(task), permanent=permanent, round_delay=role.round_delay)
    return _verdict(task, verdict, described(error), "retry_round", encoded_error)


def timed_out(task: Started, role: Role) -> Outcome:
    """Return the outcome of a task that was stopped from outside, past its time limit."""
    delay = role.backoff.seconds(task.retry_count) if role.backoff else role.round_delay
    verdict = after_timeout(_attempt(task), delay=delay, round_delay=role.round_delay)
    limit = (task.headers or {}).get("time_limit") or role.hard_timeout or task.timeout or role.timeout
    kind = TimeLimitExceeded
    encoded_error = {"exc_type": kind.__name__, "exc_module": kind.__module__, "exc_message": [limit]}
    why = f"{kind.__name__}: ran past its time limit and was stopped"
    return _verdict(task, verdict, why, "timeout", encoded_error)


def snoozed(task: Started, seconds: float, why: str) -> Outcome:
    """Return the outcome of a task that runs later, without using up an attempt."""
    return Outcome(
        task=task, status=states.PENDING, kind="snooze", error=_stored(str(why)) if why else None, delay=seconds,
        retry_count=task.retry_count, tries=task.tries,
    )  # fmt: skip


#: The delay (seconds) before a task that got no connection to Postgres runs again.
TURNED_AWAY_FOR = 1.0


def turned_away(task: Started, error: BaseException) -> Outcome:
    """Return the outcome if the handler got no connection to Postgres:
    not the task's fault, so no loss, however long.
    """
    return snoozed(task, TURNED_AWAY_FOR, str(described(error)))


def lost(task: Started, error: BaseException) -> Outcome:
    """Return the outcome of a run whose writes were lost because Postgres rolled them back or went away.

    No attempt is used up. It counts as a loss, because the task itself may cause this each time, unless Postgres was
    restarted meanwhile.
    """
    why = "its worker could not keep it" if isinstance(error, LeaseLost) else "its writes were not committed"
    return Outcome(task=task, status=LOST, error=f"{why}: {described(error)}")


def requeued(task: Started, error: BaseException) -> Outcome:
    """Return the outcome of Celery's `Reject(requeue=True)`: it counts as a loss, as nothing else would ever end it."""
    return Outcome(task=task, status=LOST, error=f"rejected, to be delivered again: {described(error)}")


def expired(task: Started) -> Outcome:
    """Return the outcome of a task that reached a worker too late to begin."""
    return _ended(task, states.CANCELLED, kind="expired", error="expired before it started")


def cancelled(task: Started) -> Outcome:
    return _ended(task, states.CANCELLED, kind="cancelled", error="cancelled while running")


#: Maximum characters of an error's text that are stored.
LONGEST_ERROR = 4_000


def described(error: BaseException | None) -> str | None:
    """Return `Kind: message` in a form that can be stored.
    It is cut to its length later, once its secrets are hidden.
    """
    if error is None:
        return None
    try:
        message = str(error)
    except BaseException as unreadable:
        if is_from_outside(unreadable):
            raise
        message = f"(its message cannot be read: {type(unreadable).__name__})"
    return _stored(f"{type(error).__name__}: {message}")


def _stored(message: str) -> str:
    return storable(message[: LONGEST_ERROR + MARGIN])


def storable(text: str) -> str:
    """Escape what Postgres cannot store: NUL, and half a surrogate pair."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def _attempt(task: Started) -> Attempt:
    return Attempt(task.retry_count, task.max_retries, task.tries, task.max_rounds)


def _verdict(task: Started, verdict: Again | Failed, error: str | None, kind: str, encoded_error: Any) -> Outcome:
    if isinstance(verdict, Failed):
        return Outcome(
            task=task, status=states.FAILED, kind="failed", error=error, result=encoded_error,
            retry_count=task.retry_count, tries=verdict.tries,
        )  # fmt: skip
    return Outcome(
        task=task, status=states.PENDING, kind=kind, error=error, delay=verdict.delay,
        retry_count=verdict.retry_count, tries=verdict.tries,
    )  # fmt: skip


def _ended(task: Started, status: str, **more: Any) -> Outcome:
    return Outcome(task=task, status=status, retry_count=task.retry_count, tries=task.tries, **more)
