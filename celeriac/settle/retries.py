"""Decide what becomes of an attempt that did not succeed. Pure: gets the facts, returns a verdict.

Attempts come in rounds (the InstaSite rule: 5 rounds of 5 attempts). `retry_count` counts the retries in this
round, `tries` the rounds used up; delays grow within a round and start anew in the next.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attempt:
    """The counts and limits of a task whose attempt ends badly."""

    retry_count: int
    max_retries: int | None
    tries: int = 0
    max_rounds: int = 1


@dataclass(frozen=True, slots=True)
class Again:
    """The verdict that the task is pending again, due `delay` seconds from now."""

    delay: float
    retry_count: int
    tries: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The verdict that the task has failed for good."""

    tries: int


def after_failure(attempt: Attempt, *, permanent: bool, round_delay: float) -> Again | Failed:
    """Use up the round and return either another round or the end.

    A `retry()` or an autoretry does not come here: `run/outcomes.py` `retried` makes its outcome.
    """
    tries = attempt.max_rounds if permanent else attempt.tries + 1
    if tries >= attempt.max_rounds:
        return Failed(tries=attempt.max_rounds if permanent else tries)
    return Again(delay=round_delay, retry_count=0, tries=tries)


def after_timeout(attempt: Attempt, *, delay: float, round_delay: float) -> Again | Failed:
    """Count a run past its time limit as a failed attempt:
    retry within the round, or else as `after_failure` decides.
    """
    if attempt.max_retries is None or attempt.retry_count < attempt.max_retries:
        return Again(delay=delay, retry_count=attempt.retry_count + 1, tries=attempt.tries)
    return after_failure(attempt, permanent=False, round_delay=round_delay)
