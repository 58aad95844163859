"""Who gets a pass's free slots: equal shares, weights, caps, windows, and the order within an account."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from celeriac.dispatch import select
from celeriac.dispatch.passes import Dispatcher
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.passes import ROLE, Passes, Waiting, ids_of, policy, role
from tests.postgres.stages import claimed, enqueued, outcome, running, settled, started
from tests.processes import Rows


def test_a_pass_shares_its_slots_among_the_accounts(passes: Passes, waiting: Waiting) -> None:
    waiting(a=1000, b=100, c=100)
    assert passes.given() == {"a": 20, "b": 20, "c": 20}


def test_what_an_account_does_not_need_goes_to_the_others(passes: Passes, waiting: Waiting) -> None:
    waiting(a=1000, b=3, c=1000)
    assert Counter(passes.given().values()) == Counter([3, 29, 28])


def test_a_lone_account_may_have_all_slots(passes: Passes, waiting: Waiting) -> None:
    waiting(a=1000)
    assert passes.given() == {"a": 60}


def test_a_pass_takes_what_there_is(passes: Passes, waiting: Waiting) -> None:
    waiting(a=3, b=2)
    assert passes.given() == {"a": 3, "b": 2}
    assert passes.why_nothing() == "nothing is ready"


def test_tasks_of_no_account_are_one_account(passes: Passes, waiting: Waiting) -> None:
    waiting(**{"": 1000, "a": 1000})
    assert passes.given() == {"": 30, "a": 30}


def test_an_account_that_holds_tasks_gets_what_brings_it_level(passes: Passes, waiting: Waiting) -> None:
    waiting(a=200)
    assert passes.given(role(batch_size=30)) == {"a": 30}
    waiting(b=200)
    assert passes.given() == {"a": 15, "b": 45}


@pytest.mark.parametrize(("accounts", "n"), [(7, 70), (59, 10), (60, 8), (61, 8)])
def test_deep_accounts_of_any_number_get_equal_shares_over_the_passes(
    passes: Passes, waiting: Waiting, accounts: int, n: int
) -> None:
    """The seed's loop never ended with 7 or 59: no share of 60 is whole."""
    names = [f"a{i:02}" for i in range(accounts)]
    waiting(**dict.fromkeys(names, n))
    got: Counter[str] = Counter()
    for _ in range(6):
        given = passes.finished()
        assert sum(given.values()) == 60
        assert max(given.values()) - min(given.get(name, 0) for name in names) <= 1
        got.update(given)
        assert max(got.values()) - min(got[name] for name in names) <= 1


def test_a_quiet_account_is_served_in_the_next_pass_however_many_are_deep(passes: Passes, waiting: Waiting) -> None:
    waiting(**{f"a{i:02}": 30 for i in range(30)})
    passes.finished()
    for quiet in ("", "a15 and a half", "zz"):
        waiting(**{quiet: 1})
        assert passes.finished()[quiet] == 1


def test_with_more_accounts_than_slots_each_is_served_within_one_round(passes: Passes, waiting: Waiting) -> None:
    waiting(**{f"a{i:03}": 5 for i in range(150)})
    few = role(batch_size=50)
    served = [set(passes.finished(few)) for _ in range(3)]
    assert [len(s) for s in served] == [50, 50, 50]
    assert len(set.union(*served)) == 150


def test_the_window_counts_what_is_claimed_and_what_runs(passes: Passes, database: Database, waiting: Waiting) -> None:
    running(database, new_task(), new_task())
    enqueued(database, new_task(), new_task())
    claimed(database, n=2)
    waiting(a=100)
    window = role(window=10)
    assert passes.given(window) == {"a": 6}
    assert passes.why_nothing(window) == "the window is full"


def test_room_in_the_window_comes_back_with_each_settled_task(
    passes: Passes, dispatcher: Dispatcher, database: Database, waiting: Waiting
) -> None:
    waiting(a=100)
    window = role(window=10)
    (ticket, *others) = dispatcher.run_pass(window).tickets
    assert len(others) == 9
    (task,) = started(database, ticket.ids, ticket.token)
    settled(database, outcome(task))
    assert passes.given(window) == {"a": 1}


def test_another_roles_tasks_fill_no_window(passes: Passes, database: Database, waiting: Waiting) -> None:
    running(database, *(new_task("other") for _ in range(5)))
    waiting(a=100)
    assert passes.given(role(window=5)) == {"a": 5}


def test_a_heavier_account_gets_more(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    policy(rows, "a", weight=2)
    policy(rows, "c", weight=0.5)
    waiting(a=100, b=100, c=100)
    assert passes.given(role(batch_size=70)) == {"a": 40, "b": 20, "c": 10}


def test_of_an_only_account_with_a_cap_it_is_counted_what_waits(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    """It gets what its cap leaves room for, and not all there is."""
    policy(rows, "a", cap=20)
    waiting(a=50)
    assert passes.given() == {"a": 20}
    (claimants, _given) = passes.written("claimants, given")[-1]
    assert claimants == [{"account": "a", "waiting": 50, "cap": 20}]


def test_a_cap_counts_what_the_account_holds(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    policy(rows, "a", cap=5)
    waiting(a=100, b=10)
    assert passes.given(role(batch_size=4)) == {"a": 2, "b": 2}
    assert passes.given() == {"a": 3, "b": 8}
    assert passes.why_nothing() == "every account with work is paused or at its cap"
    assert passes.written("claimants, given")[-1] == (
        [{"account": "a", "waiting": 16, "holding": 5, "cap": 5}],
        {},
    )


def test_a_paused_account_gets_nothing_and_costs_others_nothing(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    policy(rows, "a", paused=True)
    waiting(a=100, b=100)
    assert passes.given() == {"b": 60}
    rows("UPDATE celeriac.account_policies SET paused = false")
    assert passes.given() == {"a": 60}


def test_any_number_of_paused_accounts_hides_nobody(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    for n in range(20):
        policy(rows, f"a{n:02}", **({"paused": True} if n % 2 else {"cap": 0}))
    waiting(**{f"a{n:02}": 5 for n in range(20)}, z=5)
    assert passes.given(role(batch_size=2)) == {"z": 2}


def test_a_pass_looks_at_as_many_accounts_as_it_has_slots_whatever_bounds_them(
    passes: Passes, waiting: Waiting, rows: Rows
) -> None:
    waiting(**{f"{kind}{n:03}": 2 for kind in ("paused", "shut", "capped") for n in range(100)})
    for kind, bounds in (("paused", "true, NULL"), ("shut", "false, 0"), ("capped", "false, 1")):
        rows(
            f"""INSERT INTO celeriac.account_policies (account, paused, cap)
            SELECT '{kind}' || lpad(n::text, 3, '0'), {bounds} FROM generate_series(0, 99) n"""
        )
    for n in range(5):
        assert passes.given(role(batch_size=20)) == {f"capped{20 * n + i:03}": 1 for i in range(20)}
    seen = passes.written("ARRAY(SELECT jsonb_array_elements(claimants) ->> 'account')")
    assert all(len(accounts) <= 20 + 20 * n for n, (accounts,) in enumerate(seen))
    assert passes.why_nothing(role(batch_size=20)) == "every account with work is paused or at its cap"


def test_accounts_that_hold_their_share_hide_nobody(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    waiting(**{f"a{n:02}": 5 for n in range(20)})
    assert len(passes.given(role(batch_size=20))) == 20
    waiting(z=5)
    rows("UPDATE celeriac.batchers SET cursor = ''")
    assert passes.given(role(batch_size=1)) == {"z": 1}


def test_a_paused_role_claims_nothing(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    rows("INSERT INTO celeriac.roles (role, definition, paused) VALUES ('work', '{}', true)")
    waiting(a=3)
    assert passes.why_nothing() == "the role is paused"
    rows("UPDATE celeriac.roles SET paused = false")
    assert passes.given() == {"a": 3}


def test_a_role_that_is_switched_off_claims_nothing(
    passes: Passes, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting(a=3)
    monkeypatch.setenv("BUILDS", "false")
    assert passes.why_nothing(role(enabled_by="BUILDS")) == "switched off by BUILDS"
    monkeypatch.setenv("BUILDS", "true")
    assert passes.given(role(enabled_by="BUILDS")) == {"a": 3}


def test_within_an_account_the_highest_priority_that_was_due_first_goes_first(
    dispatcher: Dispatcher, database: Database
) -> None:
    old, older = "2020-01-02T00:00:00Z", "2020-01-01T00:00:00Z"
    options: list[dict[str, Any]] = [
        {"priority": 1, "at": old}, {"priority": 5, "at": old}, {"priority": 5, "at": older},
        {"priority": 5, "at": older}, {"priority": -1, "at": older}, {"priority": 9, "delay": 1000.0},
    ]  # fmt: skip
    ids = [r.id for r in enqueued(database, *(new_task(**given) for given in options))]
    assert ids_of(dispatcher.run_pass(role(batch_size=2))) == [ids[2], ids[3]]
    assert ids_of(dispatcher.run_pass(role())) == [ids[1], ids[0], ids[4]]


def test_priority_moves_a_task_within_its_account_only(passes: Passes, database: Database) -> None:
    enqueued(database, *(new_task(account="loud", priority=100) for _ in range(50)), new_task(account="quiet"))
    assert passes.given(role(batch_size=10)) == {"loud": 9, "quiet": 1}


def test_the_accounts_tickets_take_turns(passes: Passes, dispatcher: Dispatcher, waiting: Waiting, rows: Rows) -> None:
    waiting(a=3, b=2, c=1)
    order = [rows.one("SELECT account FROM worker_tasks WHERE id = :i", i=i) for i in ids_of(dispatcher.run_pass(ROLE))]
    assert order == ["a", "b", "c", "a", "b", "a"]


def test_tasks_go_into_tickets_of_the_roles_size_each_under_a_token_of_its_own(
    dispatcher: Dispatcher, waiting: Waiting
) -> None:
    waiting(a=100)
    tickets = dispatcher.run_pass(role(chunk=25, queue="elsewhere")).tickets
    assert [(t.role, t.queue, len(t.ids)) for t in tickets] == [("work", "elsewhere", n) for n in (25, 25, 10)]
    assert len({t.token for t in tickets}) == 3


def test_a_role_that_sizes_its_tickets_by_measure_starts_with_a_few_tasks(
    dispatcher: Dispatcher, waiting: Waiting, rows: Rows
) -> None:
    measured = role(chunk="auto", prompt=True)
    waiting(a=100)
    assert [len(t.ids) for t in dispatcher.run_pass(measured).tickets] == [1] * 8
    rows("UPDATE celeriac.batchers SET seconds_per_task = 0.01")
    assert [len(t.ids) for t in dispatcher.run_pass(measured).tickets] == [20, 20, 20]


def test_the_cursor_is_remembered(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    waiting(a=100, b=100, c=100)
    one = role(batch_size=1)
    assert [set(passes.finished(one)) for _ in range(4)] == [{"a"}, {"b"}, {"c"}, {"a"}]
    assert rows("SELECT role, cursor FROM celeriac.batchers") == [("work", "a")]
    assert passes.written("cursor_before, cursor_after") == [("", "a"), ("a", "b"), ("b", "c"), ("c", "a")]


@pytest.mark.parametrize("cursor", ["zzz", "bb", "b", ""])
def test_a_cursor_of_any_account_past_or_gone_is_harmless(
    passes: Passes, waiting: Waiting, rows: Rows, cursor: str
) -> None:
    """The seed's batcher stood still for good once its cursor was past the last account with work."""
    rows("INSERT INTO celeriac.batchers (role, cursor) VALUES ('work', :cursor)", cursor=cursor)
    waiting(a=1000, b=1000, c=1000)
    assert passes.given() == {"a": 20, "b": 20, "c": 20}


def test_few_tasks_after_the_cursor_let_nobody_flood_the_pass(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    """The seed's batcher took all there was behind its cursor if that was no more than a batch."""
    rows("INSERT INTO celeriac.batchers (role, cursor) VALUES ('work', 'b')")
    waiting(a=1000, b=1000, c=50)
    assert passes.given() == {"a": 20, "b": 20, "c": 20}


def rotation(database: Database, free: int) -> list[str]:
    with database.transaction() as connection:
        seen = select.survey(connection, "work", "work")
        found = select.accounts(connection, "work", seen, free=free, depth=1).open
    return [c.account for c in found]


def test_accounts_that_are_numbers_take_turns_as_numbers(database: Database, waiting: Waiting, rows: Rows) -> None:
    waiting(**{"9": 1, "10": 1, "100": 1, "2": 1})
    assert rotation(database, 5) == ["2", "9", "10", "100"]
    rows("INSERT INTO celeriac.batchers (role, cursor) VALUES ('work', '9')")
    assert rotation(database, 5) == ["10", "100", "2", "9"]


def test_where_slots_run_out_or_one_is_no_number_turns_go_by_the_text(database: Database, waiting: Waiting) -> None:
    waiting(**{"9": 1, "10": 1, "100": 1})
    assert rotation(database, 3) == ["10", "100", "9"], "there may be more accounts than were read"
    waiting(acme=1)
    assert rotation(database, 5) == ["10", "100", "9", "acme"]


def test_a_pass_begins_with_the_smallest_number(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    waiting(**{"9": 3, "10": 3, "100": 3, "2": 3})
    assert passes.given(role(batch_size=6)) == {"2": 2, "9": 2, "10": 1, "100": 1}
    assert rows.one("SELECT cursor FROM celeriac.batchers WHERE role = 'work'") == "9"


def test_the_rotation_keeps_its_order_however_many_policies_there_are(
    database: Database, waiting: Waiting, rows: Rows
) -> None:
    """Joining them in by a hash of the accounts would give back the policies' order."""
    rows(
        "INSERT INTO celeriac.account_policies (account)"
        " SELECT 'a' || lpad(n::text, 4, '0') FROM generate_series(999, 1, -1) n"
    )
    waiting(**{f"a{n:04}": 1 for n in range(1, 100)})
    with database.transaction() as connection:
        seen = select.survey(connection, "work", "work")
        found = select.accounts(connection, "work", seen, free=60, depth=1).open
    assert [c.account for c in found] == [f"a{n:04}" for n in range(1, 61)]
