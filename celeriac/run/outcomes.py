"""From how an attempt ended to what its row becomes. Pure but for the run it reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from celery.exceptions import TimeLimitExceeded

from celeriac.errors import LeaseLost, Permanent
from celeriac.roles.role import Role
from celeriac.run.run import RetryAsked, Run
from celeriac.settle.retries import Again, Attempt, Failed, after_failure, after_timeout
from celeriac.settle.write import LOST, REPLACED, Outcome
from celeriac.store import states
from celeriac.store.started import Started
from celeriac.store.states import STAYS


def completed(run: Run, result: Any) -> Outcome:
    task, keep = run.task, run.role.keeps_successes
    return Outcome(
        task=task, status=states.COMPLETED, result=result, keep=keep, retry_count=task.retry_count, tries=task.tries
    )


def ignored(run: Run) -> Outcome:
    """It has no result, and stays in the state that its handler told last."""
    progress = None if run.told is None else {**run.told, STAYS: True}
    return replace(completed(run, None), progress=progress)


def replaced(run: Run) -> Outcome:
    """Another task comes in its place, under its id."""
    return _ended(run.task, states.COMPLETED, kind=REPLACED, keep=False)


def retried(run: Run, error: BaseException | None) -> Outcome:
    """Celery's `retry()` or autoretry: within the round."""
    asked = run.retry_asked or RetryAsked(delay=0.0, at=None, args=None, kwargs=None)
    return Outcome(
        task=run.task, status=states.PENDING, kind="retry", error=described(error),
        delay=asked.delay or 0.0, at=asked.at, args=asked.args, kwargs=asked.kwargs,
        retry_count=run.task.retry_count + 1, tries=run.task.tries,
    )  # fmt: skip


def failed(run: Run, error: BaseException, told: Any = None) -> Outcome:
    """The round is used up, or the error is permanent: `Permanent`, or one the role does not retry for.

    `told`: the error as JSON, for whoever asks for the result.
    """
    permanent = run.is_hopeless or isinstance(error, (Permanent, *run.role.dont_retry_for))
    verdict = after_failure(_attempt(run.task), permanent=permanent, round_delay=run.role.round_delay)
    return _verdict(run.task, verdict, described(error), "retry_round", told)


def timed_out(task: Started, role: Role) -> Outcome:
    """Stopped from outside, past its time limit."""
    delay = role.backoff.seconds(task.retry_count) if role.backoff else role.round_delay
    verdict = after_timeout(_attempt(task), delay=delay, round_delay=role.round_delay)
    limit = role.hard_timeout or task.timeout or role.timeout
    kind = TimeLimitExceeded
    told = {"exc_type": kind.__name__, "exc_module": kind.__module__, "exc_message": [limit]}
    return _verdict(task, verdict, f"{kind.__name__}: ran past its time limit and was stopped", "timeout", told)


def snoozed(task: Started, seconds: float, why: str) -> Outcome:
    """Later, without burning an attempt."""
    return Outcome(
        task=task, status=states.PENDING, kind="snooze", error=_storable(str(why)) if why else None, delay=seconds,
        retry_count=task.retry_count, tries=task.tries,
    )  # fmt: skip


#: When (seconds) a task is tried again for which Postgres had no connection left.
ROOM_AFTER = 1.0


def crowded_out(task: Started, error: BaseException) -> Outcome:
    """Postgres had no connection left for its handler: no doing of the task's, so no loss, however long it lasts."""
    return snoozed(task, ROOM_AFTER, str(described(error)))


def lost(task: Started, error: BaseException) -> Outcome:
    """It came to nothing, and no attempt is burnt: Postgres took its writes back, or went away.

    It counts as a loss, as it may be the task that does this each time; not where Postgres was restarted meanwhile.
    """
    why = "its worker could not keep it" if isinstance(error, LeaseLost) else "its writes were not committed"
    return Outcome(task=task, status=LOST, error=f"{why}: {described(error)}")


def requeued(task: Started, error: BaseException) -> Outcome:
    """Celery's `Reject(requeue=True)`: delivered again, which counts as a loss, as nothing else ends it."""
    return Outcome(task=task, status=LOST, error=f"rejected, to be delivered again: {described(error)}")


def expired(task: Started) -> Outcome:
    """It came to a worker too late to begin."""
    return _ended(task, states.CANCELLED, kind="expired", error="expired before it started")


def cancelled(task: Started) -> Outcome:
    return _ended(task, states.CANCELLED, kind="cancelled", error="cancelled while running")


def described(error: BaseException | None) -> str | None:
    """`Kind: message`, as it can be stored."""
    if error is None:
        return None
    try:
        says = str(error)
    except Exception as unreadable:
        says = f"(its message cannot be read: {type(unreadable).__name__})"
    return _storable(f"{type(error).__name__}: {says}")


def _storable(says: str) -> str:
    """Bounded, and of what Postgres can store: neither NUL nor half a surrogate pair."""
    return says.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")[:4000]


def _attempt(task: Started) -> Attempt:
    return Attempt(task.retry_count, task.max_retries, task.tries, task.max_rounds)


def _verdict(task: Started, verdict: Again | Failed, error: str | None, kind: str, told: Any = None) -> Outcome:
    if isinstance(verdict, Failed):
        return Outcome(
            task=task, status=states.FAILED, kind="failed", error=error, result=told,
            retry_count=task.retry_count, tries=verdict.tries,
        )  # fmt: skip
    return Outcome(
        task=task, status=states.PENDING, kind=kind, error=error, delay=verdict.delay,
        retry_count=verdict.retry_count, tries=verdict.tries,
    )  # fmt: skip


def _ended(task: Started, status: str, **more: Any) -> Outcome:
    return Outcome(task=task, status=status, retry_count=task.retry_count, tries=task.tries, **more)
