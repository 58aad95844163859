"""The record of passes shows whether the bound of fairness holds: it does for the batcher's own decisions."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from celeriac.dispatch.fairness import Claimant, allocate, next_cursor
from celeriac.insights.fairness.rounds import SeenPass, lag

ACCOUNTS = "abcdef"


def decided(waiting: Mapping[str, int], holding: Mapping[str, int], free: int, cursor: str) -> tuple[SeenPass, str]:
    """A pass, as the batcher makes it and writes it down."""
    turn = sorted(waiting, key=lambda account: (account <= cursor, account))
    claimants = [Claimant(a, waiting[a], holding.get(a, 0)) for a in turn if waiting[a]]
    shares = allocate(claimants, free)
    seen = [{"account": c.account, "waiting": c.waiting, "holding": c.holding} for c in claimants]
    return SeenPass(seen, shares), next_cursor(claimants, shares, cursor)


@given(
    st.lists(
        st.tuples(
            st.fixed_dictionaries({a: st.integers(0, 5) for a in ACCOUNTS}),
            st.integers(1, 8),
            st.sets(st.sampled_from(ACCOUNTS)),
        ),
        max_size=12,
    )
)
def test_what_the_batcher_decides_keeps_the_bound(rounds: list[tuple[dict[str, int], int, set[str]]]) -> None:
    waiting, holding, cursor = dict.fromkeys(ACCOUNTS, 0), dict.fromkeys(ACCOUNTS, 0), ""
    passes: list[SeenPass] = []
    for comes, free, finishes in rounds:
        waiting = {a: waiting[a] + comes[a] for a in ACCOUNTS}
        holding = {a: 0 if a in finishes else holding[a] for a in ACCOUNTS}
        one, cursor = decided(waiting, holding, free, cursor)
        passes.append(one)
        waiting = {a: waiting[a] - one.slots.get(a, 0) for a in ACCOUNTS}
        holding = {a: holding[a] + one.slots.get(a, 0) for a in ACCOUNTS}
        assert lag(passes) <= 1


def seen(**waiting: int) -> list[dict[str, object]]:
    return [{"account": account, "waiting": n} for account, n in waiting.items()]


def test_an_account_that_is_passed_over_is_seen() -> None:
    assert lag([SeenPass(seen(a=5, b=1), {"a": 1}), SeenPass(seen(a=4, b=1), {"a": 1})]) == 2
    assert lag([SeenPass(seen(a=5, b=1), {"a": 3})]) == 3


def test_who_has_been_served_or_could_not_be_waits_no_more() -> None:
    unfair = [SeenPass(seen(a=5, b=1), {"a": 1}), SeenPass(seen(a=4, b=1), {"a": 1})]
    assert lag([*unfair, SeenPass(seen(a=3, b=1), {"b": 1})]) <= 1
    assert lag([*unfair, SeenPass(seen(a=3), {"a": 1})]) == 0
    assert lag([*unfair, SeenPass(None, {"a": 1})]) == 0
    capped = [{"account": "b", "waiting": 1, "cap": 0}]
    holds = [{"account": "b", "waiting": 1, "holding": 1}]
    assert [lag([SeenPass([*seen(a=5), *other], {"a": 2})]) for other in (capped, holds)] == [0, 0]
    assert lag([]) == 0


def test_of_one_account_its_own_rounds_count() -> None:
    waits = [{"account": "late", "waiting": 1}]
    passes = [SeenPass([], {"other": 9}), SeenPass(waits, {"other": 1}), SeenPass(waits, {"other": 1})]
    assert [lag(passes, account) for account in (None, "late", "other", "nobody")] == [2, 2, 0, 0]
    assert lag([*passes, SeenPass(waits, {"late": 1})], "late") == 0
