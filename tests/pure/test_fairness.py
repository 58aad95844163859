"""What `fairness` promises: no slot wasted, none taken from who has least, and nobody waits longer than one round."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from celeriac.dispatch.fairness import Claimant, allocate, in_turn, next_cursor
from tests.pure.seed_batcher import BATCH, NeverEnds, distribute

WEIGHTS = st.sampled_from([0.1, 0.5, 1.0, 2.0, 3.0, 10.0]) | st.floats(0.01, 100)
ONE = st.just(1.0)


def named(place: int) -> str:
    return f"account {place:03}"


def claimants(
    *, weights: st.SearchStrategy[float] = WEIGHTS, most: int = 12, holding: int = 20
) -> st.SearchStrategy[list[Claimant]]:
    one = st.builds(
        Claimant,
        account=st.just(""),
        waiting=st.integers(0, 30),
        holding=st.integers(0, holding),
        weight=weights,
        cap=st.none() | st.integers(0, 25),
    )
    several = st.lists(one, max_size=most)
    return several.map(lambda cs: [dataclasses.replace(c, account=named(i)) for i, c in enumerate(cs)])


FREE = st.integers(-3, 120)


def in_rotation(accounts: Sequence[str], cursor: str) -> list[str]:
    """As the batcher's walk finds them: those behind the cursor, then from the start up to it."""
    ordered = sorted(accounts)
    return [a for a in ordered if a > cursor] + [a for a in ordered if a <= cursor]


def held(claimant: Claimant, given: Mapping[str, int]) -> int:
    return claimant.holding + given.get(claimant.account, 0)


def wants_more(claimant: Claimant, given: Mapping[str, int]) -> bool:
    return given.get(claimant.account, 0) < claimant.wants


NUMBERS = st.lists(st.integers(0, 10**30), max_size=12, unique=True)


@given(NUMBERS, st.integers(0, 10**30) | st.none(), st.integers(0, 20), st.data())
def test_numbers_take_turns_as_numbers_where_nobody_waits_for_the_next_pass(
    numbers: list[int], last: int | None, free: int, data: DataObject
) -> None:
    cursor = "" if last is None else str(last)
    given = [
        Claimant(name, data.draw(st.integers(1, 9)), data.draw(st.integers(0, 2)))
        for name in in_rotation(list(map(str, numbers)), cursor)
    ]
    turns = in_turn(given, cursor, free)
    assert sorted(map(str, turns)) == sorted(map(str, given))
    quiet = [one.account for one in given if not one.holding]
    if len(quiet) > free:
        assert turns == given
        return
    assert set(quiet) <= allocate(turns, free).keys()
    after = -1 if last is None else last
    assert [int(one.account) for one in turns] == sorted(numbers, key=lambda n: (n <= after, n))


@pytest.mark.parametrize("name", ["", "07", "-1", "1.0", "١", "1a", " 1", "²"])
def test_what_is_no_whole_number_leaves_the_order(name: str) -> None:
    given = [Claimant("10", 1), Claimant("9", 1), Claimant(name, 1)]
    assert in_turn(given, "", 9) == given


# -- what one pass gives -----------------------------------------------------------------------------------------------


@given(claimants(), FREE)
def test_never_gives_more_than_is_free_nor_more_than_an_account_wants_or_may_hold(
    cs: list[Claimant], free: int
) -> None:
    given = allocate(cs, free)
    assert sum(given.values()) <= max(free, 0)
    assert set(given) <= {c.account for c in cs}
    assert all(share > 0 for share in given.values())
    for c in cs:
        share = given.get(c.account, 0)
        assert share <= c.waiting
        assert share == 0 or c.cap is None or c.holding + share <= c.cap


@given(claimants(), FREE)
def test_no_slot_stays_free_while_someone_could_use_it(cs: list[Claimant], free: int) -> None:
    given = allocate(cs, free)
    assert sum(given.values()) == min(max(free, 0), sum(c.wants for c in cs))


@given(claimants(weights=ONE), FREE)
def test_with_equal_weights_nobody_waits_who_holds_two_less_than_one_that_was_given(
    cs: list[Claimant], free: int
) -> None:
    given = allocate(cs, free)
    for rich in (c for c in cs if c.account in given):
        for poor in (c for c in cs if wants_more(c, given)):
            assert held(rich, given) <= held(poor, given) + 1


@given(claimants(weights=ONE, holding=0), FREE)
def test_two_that_hold_nothing_and_both_still_wait_differ_by_one_slot_at_most(cs: list[Claimant], free: int) -> None:
    given = allocate(cs, free)
    unsated = [given.get(c.account, 0) for c in cs if wants_more(c, given)]
    assert not unsated or max(unsated) - min(unsated) <= 1


@given(claimants(), FREE)
def test_with_weights_the_last_slot_went_to_the_smallest_holding_for_its_weight(cs: list[Claimant], free: int) -> None:
    given = allocate(cs, free)
    for rich in (c for c in cs if c.account in given):
        for poor in (c for c in cs if wants_more(c, given)):
            assert (held(rich, given) - 1) / rich.weight <= held(poor, given) / poor.weight


def test_who_holds_more_gets_nothing_before_the_others_caught_up() -> None:
    busy, idle = Claimant("busy", waiting=100, holding=10), Claimant("idle", waiting=100)
    assert allocate([busy, idle], 10) == {"idle": 10}
    assert allocate([busy, idle], 14) == {"busy": 2, "idle": 12}


def test_double_weight_holds_double() -> None:
    assert allocate([Claimant("small", 100), Claimant("large", 100, weight=2)], 60) == {"small": 20, "large": 40}


def test_an_account_at_its_cap_leaves_its_share_to_the_others() -> None:
    capped = Claimant("capped", waiting=100, holding=3, cap=5)
    assert allocate([capped, Claimant("open", 100)], 60) == {"capped": 2, "open": 58}
    assert allocate([dataclasses.replace(capped, cap=0), Claimant("open", 100)], 60) == {"open": 60}


@given(claimants(), FREE)
def test_rows_beyond_the_free_slots_need_not_be_counted(cs: list[Claimant], free: int) -> None:
    counted = [dataclasses.replace(c, waiting=min(c.waiting, max(free, 0))) for c in cs]
    assert allocate(counted, free) == allocate(cs, free)


@given(claimants(holding=2), st.integers(1, 8), st.data())
def test_accounts_behind_as_many_idle_ones_as_there_are_slots_need_not_be_looked_at(
    cs: list[Claimant], free: int, data: DataObject
) -> None:
    idle = [Claimant(f"idle {i}", waiting=data.draw(st.integers(1, 9)), weight=data.draw(WEIGHTS)) for i in range(free)]
    place = data.draw(st.integers(0, len(cs)))
    front = cs[:place] + idle
    assert allocate(front + cs[place:], free) == allocate(front, free)


# -- the seed's algorithm ----------------------------------------------------------------------------------------------

SHALLOW = st.integers(1, 12)
DEEP = st.integers(61, 400)


@given(st.lists(SHALLOW | DEEP, max_size=90))
def test_gives_what_the_seed_gives_wherever_the_seed_comes_to_an_end(waiting: list[int]) -> None:
    assert_as_the_seed(waiting)


@given(st.lists(SHALLOW, max_size=8), st.sampled_from([1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30]), st.randoms())
def test_gives_what_the_seed_gives_when_its_slots_come_out_even(shallow: list[int], deep: int, order: object) -> None:
    waiting = shallow + [1000] * deep
    getattr(order, "shuffle")(waiting)  # noqa: B009
    assert_as_the_seed(waiting)


def assert_as_the_seed(waiting: list[int]) -> None:
    queues = {named(i): n for i, n in enumerate(waiting)}
    try:
        theirs = distribute(queues)
    except NeverEnds:
        assume(False)
    event(f"{min(len(waiting) // 30, 2) * 30}+ accounts, {'all' if sum(waiting) <= BATCH else 'shared'}")
    assert allocate([Claimant(a, n) for a, n in queues.items()], BATCH) == theirs


@pytest.mark.parametrize(("accounts", "shares"), [(7, {9: 4, 8: 3}), (59, {2: 1, 1: 58})])
def test_leftovers_fewer_than_accounts_are_given_out_where_the_seed_never_ends(
    accounts: int, shares: dict[int, int]
) -> None:
    queues = {named(i): 1000 for i in range(accounts)}
    with pytest.raises(NeverEnds):
        distribute(queues)
    given = allocate([Claimant(a, n) for a, n in queues.items()], BATCH)
    assert Counter(given.values()) == shares
    assert list(given.values()) == sorted(given.values(), reverse=True), "the first in rotation get what is left over"


# -- from pass to pass -------------------------------------------------------------------------------------------------


def run_pass(claimants: Mapping[str, Claimant], free: int, cursor: str) -> tuple[dict[str, int], str]:
    ordered = [claimants[a] for a in in_rotation(list(claimants), cursor)]
    given = allocate(ordered, free)
    return given, next_cursor(ordered, given, cursor)


@given(st.integers(1, 20), st.integers(1, 70), st.integers(1, 12), st.text(max_size=3))
def test_leftovers_go_round(accounts: int, free: int, passes: int, cursor: str) -> None:
    deep = {named(i): Claimant(named(i), 1000) for i in range(accounts)}
    total: Counter[str] = Counter(dict.fromkeys(deep, 0))
    for _ in range(passes):
        given, cursor = run_pass(deep, free, cursor)
        total.update(given)
        assert max(total.values()) - min(total.values()) <= 1


@given(st.data())
def test_a_quiet_account_is_served_before_a_round_of_slots_was_given_to_others(data: DataObject) -> None:
    """Promise 10 as a bound: with n accounts, at most n - 1 slots go elsewhere before the quiet one gets its own.

    The others come and go, hold what they like, and have any weight; so has the quiet one.
    """
    names = [named(i) for i in range(data.draw(st.integers(1, 12), "accounts"))]
    quiet = data.draw(st.sampled_from(names), "quiet")
    cursor = data.draw(st.sampled_from(["", *names, "zzz"]), "cursor")
    weights = {a: data.draw(WEIGHTS) for a in names}
    elsewhere = 0
    while True:
        waiting = {quiet} | data.draw(st.sets(st.sampled_from(names)), "waiting")
        claimants = {
            a: Claimant(
                a, waiting=1 if a == quiet else data.draw(st.integers(1, 90)),
                holding=0 if a == quiet else data.draw(st.integers(0, 2)), weight=weights[a],
            )
            for a in waiting
        }  # fmt: skip
        given, cursor = run_pass(claimants, data.draw(st.integers(1, 5), "free"), cursor)
        if quiet in given:
            break
        elsewhere += sum(given.values())
        assert elsewhere < len(names)


def test_a_quiet_account_is_served_within_one_round_however_the_weights_before_it_fall() -> None:
    """The lightest account served once took the cursor back to itself: 16 passes went by where 4 are a round."""
    falling = {named(i): Claimant(named(i), 1000, weight=1 / (20 - i)) for i in range(20)}
    cursor, served = "", set[str]()
    for _ in range(4):
        given, cursor = run_pass(falling, 5, cursor)
        served |= set(given)
    assert served == set(falling)


@given(st.integers(1, 30), st.integers(1, 7), st.text(max_size=12))
def test_every_account_is_served_within_one_round_wherever_the_cursor_stands(n: int, free: int, cursor: str) -> None:
    deep = {named(i): Claimant(named(i), 1000) for i in range(n)}
    served: set[str] = set()
    for _ in range(-(-n // free)):
        given, cursor = run_pass(deep, free, cursor)
        served |= set(given)
    assert served == set(deep)


def test_a_cursor_behind_the_last_account_with_work_starts_over_where_the_seed_stops_for_good() -> None:
    given, cursor = run_pass({"a": Claimant("a", 5), "b": Claimant("b", 5)}, 1, cursor="zzz")
    assert (given, cursor) == ({"a": 1}, "a")


def test_few_rows_behind_the_cursor_do_not_let_one_account_flood_the_batch() -> None:
    """The seed: "total ≤ 60, take all" of what stands behind its cursor."""
    given, _ = run_pass({"a": Claimant("a", 1000), "z": Claimant("z", 50)}, 60, cursor="m")
    assert given == {"a": 30, "z": 30}


@given(claimants(), FREE, st.text(max_size=3))
def test_the_next_pass_starts_behind_the_account_that_got_the_last_slot(
    cs: list[Claimant], free: int, cursor: str
) -> None:
    given = allocate(cs, free)
    one_less = allocate(cs, sum(given.values()) - 1)
    last = [a for a in given if given[a] != one_less.get(a, 0)]
    assert next_cursor(cs, given, cursor) == (last[0] if last else cursor)
