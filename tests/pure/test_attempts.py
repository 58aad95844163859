"""What a task's page says of its attempts: how each ended, and what follows the next failure."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac.insights.tasks.attempts import after_a_failure, attempts
from celeriac.roles.backoff import Backoff
from celeriac.settle import retries

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def event(minute: int, kind: str, was: str | None = "running", now: str = "pending", **more: Any) -> dict[str, Any]:
    at = NOON + timedelta(minutes=minute)
    return {"at": at, "kind": kind, "from_status": was, "to_status": now, "by": "w", "why": "E: x"} | more


def test_attempts_are_runs_that_ended_without_success_newest_first() -> None:
    told = [
        event(0, "retry"), event(1, "prioritised", "pending"), event(2, "asked", now="running"), event(3, "lost"),
        event(4, "failed", now="failed", why="E: last"), event(5, "retried", "failed"),
        event(6, "completed", now="completed"),
    ]  # fmt: skip
    found = attempts(told)
    assert [(one.number, one.kind, one.error) for one in found] == [
        (3, "failed", "E: last"), (2, "lost", "E: x"), (1, "retry", "E: x")
    ]  # fmt: skip
    assert attempts([]) == []


def row(retry_count: int = 0, max_retries: int | None = 4, tries: int = 0, max_rounds: int = 1) -> dict[str, Any]:
    return {"retry_count": retry_count, "max_retries": max_retries, "tries": tries, "max_rounds": max_rounds}


def test_the_formula_has_the_numbers_of_this_task() -> None:
    told = after_a_failure(row(3), asdict(Backoff(2, 600, True)), 0)
    assert told == (
        "Attempt 4 of 5. If it fails and is to be retried, it is at most 16 s later "
        "(2 s × 2^3, at most 600 s, less by chance)."
    )
    assert "about 16 s later (2 s × 2^3, at most 600 s, ±20%)" in after_a_failure(
        row(3), asdict(Backoff(2, 600, 0.2)), 0
    )
    assert "it is 10 s later (2 s × 2^3, at most 10 s)" in after_a_failure(row(3), asdict(Backoff(2, 10, 0)), 0)
    assert "as long as its handler says" in after_a_failure(row(3), None, 0)


def test_the_end_of_a_round_is_told() -> None:
    assert after_a_failure(row(4, tries=1, max_rounds=5), None, 3600) == (
        "Attempt 5 of 5, in round 2 of 5. If it fails, the next round begins 3600 s later."
    )
    assert after_a_failure(row(4), None, 0) == "Attempt 5 of 5. If it fails, it has failed for good."


@given(st.integers(0, 9), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 5), st.integers(1, 6), st.booleans())
def test_it_says_what_the_settle_does(done: int, most: int | None, tries: int, rounds: int, has_backoff: bool) -> None:
    """Of an attempt that ends at its time limit, which the engine itself retries."""
    told = after_a_failure(row(done, most, tries, rounds), asdict(Backoff()) if has_backoff else None, 7.0)
    attempt = retries.Attempt(done, most, tries, rounds)
    does = retries.after_timeout(attempt, delay=1.0, round_delay=7.0)
    if isinstance(does, retries.Failed):
        assert told.endswith("it has failed for good.")
    elif does.tries > tries:
        assert told.endswith("the next round begins 7 s later.")
    else:
        assert "is to be retried" in told


@pytest.mark.parametrize("retry", range(12))
@pytest.mark.parametrize("jitter", [True, 0.2, 0])
def test_the_delay_is_the_backoffs(retry: int, jitter: float | bool) -> None:
    backoff = Backoff(1.5, 100.0, jitter)
    middle = backoff.seconds(retry, 1.0 if jitter is True else 0.5)
    assert f" {middle:g} s later" in after_a_failure(row(retry, 20), asdict(backoff), 0)
