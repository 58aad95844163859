"""Reddit's limit, shared by processes: what is admitted never adds up to more than Reddit allows."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from celeriac.store.connections import Database
from tasks.reddit_answers import Limit, RedditRateLimited
from tasks.reddit_budget import Budget
from tests.processes import Rows


class Reddit:
    """Counts requests within one window."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used, self._lock = limit, 0, threading.Lock()

    def ask(self) -> Limit:
        with self._lock:
            self.used += 1
            return Limit(self.limit - self.used, 60)


@pytest.fixture
def budget(database: Database) -> Budget:
    return Budget(database, "client", reserve=0, patience=16)


def crawled(budget: Budget, reddit: Reddit, requests: int = 3, spent: int = 3) -> bool:
    """Whether a crawl that may ask `requests` and asks `spent` of them was admitted."""
    try:
        with budget.admit(requests) as allowance:
            for _ in range(spent):
                allowance.spend()
                allowance.heard(reddit.ask())
    except RedditRateLimited:
        return False
    return True


def test_crawls_at_once_never_ask_more_than_the_limit_and_leave_none_of_it(budget: Budget) -> None:
    reddit = Reddit(limit=40)
    with ThreadPoolExecutor(8) as crawls:
        admitted = sum(crawls.map(lambda _: crawled(budget, reddit), range(40)))
    assert (admitted, reddit.used) == (13, 39)


def test_a_reserve_is_left_alone(budget: Budget) -> None:
    budget.reserve = 10
    reddit = Reddit(limit=40)
    assert sum(crawled(budget, reddit) for _ in range(40)) == 10
    assert reddit.used == 30


def test_what_a_crawl_did_not_ask_is_there_for_others(budget: Budget) -> None:
    reddit = Reddit(limit=12)
    assert sum(crawled(budget, reddit, requests=3, spent=1) for _ in range(40)) == 10
    assert reddit.used == 10


def test_who_comes_too_late_is_told_when_the_window_ends(budget: Budget) -> None:
    assert crawled(budget, Reddit(limit=3))
    with pytest.raises(RedditRateLimited) as refused:
        budget.admit(3)
    assert refused.value.retry_after == pytest.approx(61, abs=2)


def test_an_ended_window_is_found_out_about_by_one(budget: Budget, rows: Rows) -> None:
    assert crawled(budget, Reddit(limit=3))
    rows("UPDATE reddit_budgets SET resets_at = now()")
    first = budget.admit(3)
    heard, asked = threading.Event(), count()

    def another() -> None:
        next(asked)
        with budget.admit(3):
            assert heard.is_set()

    with ThreadPoolExecutor(4) as others:
        waiting = [others.submit(another) for _ in range(4)]
        first.spend()
        heard.set()
        first.heard(Limit(100, 60))
        for one in waiting:
            one.result()
    assert next(asked) == 4


def test_another_finds_out_if_the_first_hears_nothing(budget: Budget) -> None:
    with pytest.raises(ConnectionError), budget.admit(3):
        raise ConnectionError
    assert crawled(budget, Reddit(limit=30))


def test_an_answer_from_the_window_before_changes_nothing(budget: Budget, rows: Rows) -> None:
    late = budget.admit(3)
    late.heard(Limit(100, 60))
    budget.heard(Limit(900, 600), 0)
    late.heard(Limit(2, 1))
    assert rows("SELECT remaining, resets_at > now() + interval '590 seconds' FROM reddit_budgets") == [(900, True)]


def test_a_crawl_stops_where_reddit_says_that_nothing_is_left(budget: Budget) -> None:
    with budget.admit(3) as allowance:
        allowance.spend()
        allowance.heard(Limit(0, 60))
        with pytest.raises(RedditRateLimited):
            allowance.spend()


def test_each_client_has_its_own_limit(budget: Budget, database: Database) -> None:
    assert crawled(budget, Reddit(limit=3))
    assert crawled(Budget(database, "another", reserve=0, patience=16), Reddit(limit=3))
