"""From how a run ended to what its row becomes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from celeriac.errors import Permanent
from celeriac.roles.backoff import Backoff
from celeriac.roles.role import Role, days
from celeriac.roles.rules import FOREVER
from celeriac.run import outcomes
from celeriac.run.outcomes import RetryAsked
from celeriac.run.run import Run
from celeriac.run.start import Started
from celeriac.settle.outcome import Outcome
from celeriac.store import states
from celeriac.store.redact import HIDDEN
from celeriac.store.sensitive import Sensitive

BOOM = ValueError("boom")


def started(**given: Any) -> Started:
    zero: dict[str, Any] = dict.fromkeys(inspect.signature(Started).parameters)
    zero |= {"retry_count": 0, "max_retries": 4, "tries": 0, "max_rounds": 5}
    return Started(**(zero | given))


def run(role: Role | None = None, **given: Any) -> Run:
    return Run(started(**given), role or Role(name="build", max_retries=4, max_rounds=5, round_delay=30), database=None)  # type: ignore[arg-type]


def ended(run: Run) -> Outcome:
    assert run.outcome is not None
    return run.outcome


def failed(run: Run, error: BaseException, encoded_error: Any = None) -> Outcome:
    run.fail(error, encoded_error)
    return ended(run)


def counts(outcome: Outcome) -> tuple[str, int, int]:
    return outcome.status, outcome.retry_count, outcome.tries


def test_success_keeps_the_counts_and_the_result() -> None:
    succeeding = run(retry_count=2, tries=1)
    succeeding.succeed({"ok": True})
    outcome = ended(succeeding)
    assert counts(outcome) == (states.COMPLETED, 2, 1)
    assert outcome.result == {"ok": True}


@pytest.mark.parametrize(("keep", "stays"), [(None, False), (days(0), False), (days(1), True), (FOREVER, True)])
def test_a_role_that_keeps_nothing_loses_its_row_with_its_success(keep: Any, stays: bool) -> None:
    succeeding = run(Role(name="build", keep=keep))
    succeeding.succeed(None)
    assert ended(succeeding).keep is stays


def test_a_failed_row_stays_even_if_its_role_keeps_nothing() -> None:
    assert failed(run(Role(name="build", keep=None), tries=4), BOOM).keep


def test_a_retry_counts_within_its_round_and_takes_what_was_asked_for() -> None:
    asked = run(retry_count=1, tries=2)
    asked.retry_asked = RetryAsked(delay=10, at=None, args=[1], kwargs={"x": 2})
    asked.retry(BOOM)
    outcome = ended(asked)
    assert counts(outcome) == (states.PENDING, 2, 2)
    assert (outcome.delay, outcome.args, outcome.kwargs, outcome.kind) == (10, [1], {"x": 2}, "retry")
    assert outcome.error == "ValueError: boom"


def test_a_retry_at_a_time_waits_for_that_time() -> None:
    asked = run()
    asked.retry_asked = RetryAsked(delay=None, at="2030-01-01T00:00:00Z", args=None, kwargs=None)
    asked.retry(BOOM)
    assert ended(asked).at == "2030-01-01T00:00:00Z"


def test_a_failure_ends_the_round_and_the_next_starts_fresh_after_its_delay() -> None:
    outcome = failed(run(retry_count=4, tries=1), BOOM)
    assert counts(outcome) == (states.PENDING, 0, 2)
    assert (outcome.delay, outcome.kind) == (30, "retry_round")


def test_the_failure_of_the_last_round_is_told_with_the_error() -> None:
    outcome = failed(run(retry_count=4, tries=4), BOOM, {"exc_type": "ValueError"})
    assert counts(outcome) == (states.FAILED, 4, 5)
    assert (outcome.error, outcome.result) == ("ValueError: boom", {"exc_type": "ValueError"})


def test_a_permanent_error_fails_at_once_with_all_tries_used() -> None:
    assert counts(failed(run(), Permanent("no such template"))) == (states.FAILED, 0, 5)


def test_an_error_the_role_does_not_retry_for_starts_no_further_round_either() -> None:
    role = Role(name="build", max_retries=4, max_rounds=5, retry_for=(Exception,), dont_retry_for=(OSError,))
    assert counts(failed(run(role), FileNotFoundError())) == (states.FAILED, 0, 5)
    assert counts(failed(run(role), BOOM)) == (states.PENDING, 0, 1)


def test_a_run_past_its_limit_waits_by_the_roles_backoff() -> None:
    role = Role(name="build", round_delay=30, backoff=Backoff(base=5, jitter=False))
    outcome = outcomes.timed_out(started(retry_count=2), role)
    assert counts(outcome) == (states.PENDING, 3, 0)
    assert (outcome.delay, outcome.kind) == (20, "timeout")
    assert str(outcome.error).startswith("TimeLimitExceeded")


@pytest.mark.parametrize(("headers", "limit"), [(None, 40), ({"time_limit": 2.0}, 2.0)])
def test_a_run_past_its_limit_says_which_one_it_was(headers: Any, limit: float) -> None:
    task = started(timeout=1.0, headers=headers, retry_count=4, tries=4)
    outcome = outcomes.timed_out(task, Role(name="build", timeout=30, hard_timeout=40))
    assert outcome.result["exc_message"] == [limit]


def test_a_snooze_burns_nothing() -> None:
    outcome = outcomes.snoozed(started(retry_count=3, tries=2), 60, "not there yet")
    assert counts(outcome) == (states.PENDING, 3, 2)
    assert (outcome.delay, outcome.kind, outcome.error) == (60, "snooze", "not there yet")


@pytest.mark.parametrize(("why", "told"), [("a\x00b", "a\\x00b"), ("\ud800", "\\ud800"), ("", None)])
def test_why_it_snoozes_is_told_as_it_can_be_stored(why: str, told: str | None) -> None:
    assert outcomes.snoozed(started(), 60, why).error == told


def test_a_cancelled_run_ends_cancelled() -> None:
    assert counts(outcomes.cancelled(started(retry_count=1))) == (states.CANCELLED, 1, 0)


def test_an_error_is_told_bounded_and_without_the_nul_that_postgres_cannot_store() -> None:
    assert outcomes.described(None) is None
    assert outcomes.described(ValueError("a\x00b")) == "ValueError: a\\x00b"
    assert len(failed(run(), ValueError("x" * 10_000)).error or "") == outcomes.LONGEST_ERROR


@pytest.mark.parametrize("begins", range(outcomes.LONGEST_ERROR - 30, outcomes.LONGEST_ERROR, 3))
@pytest.mark.parametrize("ends", ["fail", "retry", "lose", "requeue", "snooze"])
def test_no_end_of_an_error_is_the_beginning_of_a_secret(begins: int, ends: str) -> None:
    one = run(args=[], kwargs={"password": "hunter2-and-more"})
    one.secret = Sensitive(frozenset({"password"}))
    said = "~" * (begins - len("ValueError: ")) + "hunter2-and-more" + "~" * 5_000
    one.snooze(1, said) if ends == "snooze" else getattr(one, ends)(ValueError(said))
    assert "hu" not in str(ended(one).error)
    assert len(ended(one).error or "") <= outcomes.LONGEST_ERROR + len(HIDDEN)


def _no_text(_: object) -> str:
    raise RuntimeError("no text for you")


@pytest.mark.parametrize(
    "error",
    [ValueError("half a pair: \ud83d"), type("Mute", (Exception,), {"__str__": _no_text})()],
    ids=["lone surrogate", "str() raises"],
)
def test_an_error_that_cannot_be_told_as_it_is_does_not_keep_its_row_from_being_settled(error: Exception) -> None:
    told = outcomes.described(error)
    assert told is not None
    assert told.encode("utf-8")
