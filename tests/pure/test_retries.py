"""When an attempt that did not succeed comes again, and when it is over."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac import Task
from celeriac.roles.backoff import Backoff
from celeriac.settle.retries import Again, Attempt, Failed, after_failure, after_timeout
from tasks import instasites, subreddits


def backoff_of(task: Task[..., Any]) -> Backoff:
    assert task.role.backoff is not None
    return task.role.backoff


#: The crawl jobs' rule: 1 minute × 2^n, ±20 %, at most a day.
CRAWL = backoff_of(subreddits.crawl)

#: The InstaSite rule: 5 tries of 5 attempts, 5 seconds × 2^n between the attempts of a try.
INSTASITE = backoff_of(instasites.build)

DRAW = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("retry", "shortest", "longest"),
    [(1, 48, 72), (2, 96, 144), (3, 192, 288), (4, 384, 576), (5, 768, 1152), (20, 19.2 * 3600, 28.8 * 3600)],
)
def test_crawl_jobs_wait_as_their_table_says(retry: int, shortest: float, longest: float) -> None:
    assert CRAWL.seconds(retry - 1, draw=0.0) == pytest.approx(shortest)
    assert CRAWL.seconds(retry - 1, draw=1.0) == pytest.approx(longest)


@given(st.integers(0, 5000), DRAW)
def test_a_fraction_of_jitter_stays_within_that_fraction_of_the_capped_delay(retry: int, draw: float) -> None:
    delay = min(86_400, 60 * 2**retry)
    assert 0.8 * delay <= CRAWL.seconds(retry, draw) * 1.000001
    assert CRAWL.seconds(retry, draw) <= 1.2 * delay * 1.000001


@given(st.integers(0, 5000), DRAW)
def test_full_jitter_is_anywhere_below_the_delay(retry: int, draw: float) -> None:
    full, plain = Backoff(base=3, maximum=600, jitter=True), Backoff(base=3, maximum=600, jitter=False)
    assert full.seconds(retry, draw) == pytest.approx(plain.seconds(retry) * draw)


@given(st.integers(0, 5000), DRAW)
def test_delays_without_jitter_never_shrink_and_never_pass_the_maximum(retry: int, draw: float) -> None:
    plain = Backoff(base=5, maximum=600, jitter=False)
    assert plain.seconds(retry, draw) <= plain.seconds(retry + 1, draw) <= 600


def test_without_a_draw_chance_decides() -> None:
    assert len({CRAWL.seconds(3) for _ in range(8)}) > 1


def test_a_build_waits_5_10_20_40_seconds_where_the_seed_configured_a_constant() -> None:
    assert [INSTASITE.seconds(n) for n in range(4)] == [5, 10, 20, 40]


def lived(*, max_retries: int, max_rounds: int, backoff: Backoff, round_delay: float = 0) -> tuple[list[float], Failed]:
    """The delays before each further attempt of a task that never succeeds, as its worker decides them."""
    delays: list[float] = []
    retry_count = tries = 0
    for _ in range(100):
        attempt = Attempt(retry_count, max_retries, tries, max_rounds)
        verdict = after_timeout(attempt, delay=backoff.seconds(retry_count), round_delay=round_delay)
        if isinstance(verdict, Failed):
            return delays, verdict
        delays.append(verdict.delay)
        retry_count, tries = verdict.retry_count, verdict.tries
    pytest.fail("it never ends")


def test_a_build_is_attempted_five_times_in_each_of_five_tries() -> None:
    delays, end = lived(max_retries=4, max_rounds=5, backoff=INSTASITE, round_delay=30)
    assert delays == ([5, 10, 20, 40, 30] * 5)[:-1]
    assert end == Failed(tries=5)


@given(st.integers(0, 6), st.integers(1, 6))
def test_attempts_are_the_rounds_times_the_retries_and_the_first(max_retries: int, max_rounds: int) -> None:
    delays, end = lived(max_retries=max_retries, max_rounds=max_rounds, backoff=INSTASITE)
    assert len(delays) + 1 == max_rounds * (max_retries + 1)
    assert end == Failed(tries=max_rounds)


def test_a_used_up_round_starts_the_next_with_fresh_retries() -> None:
    verdict = after_failure(Attempt(4, 4, tries=1, max_rounds=5), permanent=False, round_delay=30)
    assert verdict == Again(delay=30, retry_count=0, tries=2)


def test_the_last_round_used_up_is_the_end() -> None:
    assert after_failure(Attempt(4, 4, tries=4, max_rounds=5), permanent=False, round_delay=30) == Failed(tries=5)


@given(st.integers(0, 9), st.integers(0, 9) | st.none(), st.integers(0, 9), st.integers(1, 9))
def test_a_permanent_error_ends_it_at_once_and_leaves_no_try(
    retry_count: int, max_retries: int | None, tries: int, max_rounds: int
) -> None:
    attempt = Attempt(retry_count, max_retries, tries, max_rounds)
    assert after_failure(attempt, permanent=True, round_delay=1) == Failed(tries=max_rounds)


@given(st.integers(0, 10**6))
def test_without_a_limit_a_late_run_is_retried_for_ever(retry_count: int) -> None:
    verdict = after_timeout(Attempt(retry_count, None, 0, 1), delay=7, round_delay=1)
    assert verdict == Again(delay=7, retry_count=retry_count + 1, tries=0)


def test_a_limit_lowered_below_what_was_used_up_ends_it() -> None:
    assert after_failure(Attempt(0, 0, tries=7, max_rounds=3), permanent=False, round_delay=1) == Failed(tries=8)
    assert after_timeout(Attempt(9, 3), delay=1, round_delay=1) == Failed(tries=1)
