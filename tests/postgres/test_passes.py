"""The batcher's pass: who gets the free slots, what it writes down, and how it outlives whatever goes wrong."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from celeriac import Celeriac, sweeps
from celeriac.database import Database
from celeriac.dispatcher import Dispatcher, Pass
from celeriac.fairness import Claimant, allocate
from celeriac.roles import Role
from celeriac.verbs import claim, select
from tests.postgres.conftest import Recorder, new_task
from tests.postgres.stages import claimed, enqueued, outcome, running, settled, started, started_alone
from tests.processes import Rows

Waiting = Callable[..., None]
Given = dict[str, int]

ROLE = Role(name="work", batch_size=60, window=10_000, chunk=1, eager=False)


def role(**options: Any) -> Role:
    return Role(**({"name": "work", "batch_size": 60, "window": 10_000, "chunk": 1, "eager": False} | options))


@pytest.fixture
def waiting(rows: Rows) -> Waiting:
    """`waiting(a=100, b=3)`: so many ready tasks for each of these accounts."""

    def put(**tasks: int) -> None:
        for account, n in tasks.items():
            rows(
                "INSERT INTO worker_tasks (task_id, role, account) "
                "SELECT gen_random_uuid(), 'work', :account FROM generate_series(1, :n)",
                account=account,
                n=n,
            )

    return put


def policy(rows: Rows, account: str, **columns: Any) -> None:
    row = {"weight": 1, "cap": None, "paused": False} | columns
    rows(
        "INSERT INTO account_policies (account, weight, cap, paused) VALUES (:account, :weight, :cap, :paused)",
        account=account,
        **row,
    )


def ids_of(done: Pass) -> list[int]:
    return [i for ticket in done.tickets for i in ticket.ids]


def by_account(rows: Rows, ids: Iterable[int]) -> Given:
    found = rows("SELECT account, count(*) FROM worker_tasks WHERE id = ANY(:ids) GROUP BY account", ids=list(ids))
    return dict(found)  # type: ignore[arg-type]


def finish(rows: Rows) -> None:
    """Whatever is active completes."""
    rows("""UPDATE worker_tasks SET status = 'completed', completed_at = now()
        WHERE status IN ('claimed', 'running')""")


class Passes:
    """Passes of one role, and what each account got of them."""

    def __init__(self, dispatcher: Dispatcher, rows: Rows) -> None:
        self.dispatcher = dispatcher
        self.rows = rows

    def given(self, of: Role = ROLE) -> Given:
        return by_account(self.rows, ids_of(self.dispatcher.run_pass(of)))

    def finished(self, of: Role = ROLE) -> Given:
        given = self.given(of)
        finish(self.rows)
        return given

    def why_nothing(self, of: Role = ROLE) -> str | None:
        done = self.dispatcher.run_pass(of)
        assert not done.tickets
        return done.why_nothing

    def written(self, columns: str) -> Sequence[tuple[Any, ...]]:
        return self.rows(f"SELECT {columns} FROM passes ORDER BY id")


@pytest.fixture
def passes(dispatcher: Dispatcher, rows: Rows) -> Passes:
    return Passes(dispatcher, rows)


# -- shares ------------------------------------------------------------------------------------------------------------


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


# -- bounds ------------------------------------------------------------------------------------------------------------


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
    rows("UPDATE account_policies SET paused = false")
    assert passes.given() == {"a": 60}


def test_any_number_of_paused_accounts_hides_nobody(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    for n in range(20):
        policy(rows, f"a{n:02}", **({"paused": True} if n % 2 else {"cap": 0}))
    waiting(**{f"a{n:02}": 5 for n in range(20)}, z=5)
    assert passes.given(role(batch_size=2)) == {"z": 2}


def test_accounts_that_hold_their_share_hide_nobody(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    waiting(**{f"a{n:02}": 5 for n in range(20)})
    assert len(passes.given(role(batch_size=20))) == 20
    waiting(z=5)
    rows("UPDATE batchers SET cursor = ''")
    assert passes.given(role(batch_size=1)) == {"z": 1}


def test_a_paused_role_claims_nothing(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    rows("INSERT INTO roles (role, definition, paused) VALUES ('work', '{}', true)")
    waiting(a=3)
    assert passes.why_nothing() == "the role is paused"
    rows("UPDATE roles SET paused = false")
    assert passes.given() == {"a": 3}


def test_a_role_that_is_switched_off_claims_nothing(
    passes: Passes, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting(a=3)
    monkeypatch.setenv("BUILDS", "false")
    assert passes.why_nothing(role(enabled_by="BUILDS")) == "switched off by BUILDS"
    monkeypatch.setenv("BUILDS", "true")
    assert passes.given(role(enabled_by="BUILDS")) == {"a": 3}


# -- order -------------------------------------------------------------------------------------------------------------


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


def test_rows_go_into_tickets_of_the_roles_size_under_one_token(dispatcher: Dispatcher, waiting: Waiting) -> None:
    waiting(a=100)
    tickets = dispatcher.run_pass(role(chunk=25, queue="elsewhere")).tickets
    assert [(t.role, t.queue, len(t.ids)) for t in tickets] == [("work", "elsewhere", n) for n in (25, 25, 10)]
    assert len({t.token for t in tickets}) == 1


def test_a_role_that_sizes_its_tickets_by_measure_starts_with_a_few_tasks(
    dispatcher: Dispatcher, waiting: Waiting, rows: Rows
) -> None:
    measured = role(chunk="auto", eager=True)
    waiting(a=100)
    assert [len(t.ids) for t in dispatcher.run_pass(measured).tickets] == [1] * 8
    rows("UPDATE batchers SET seconds_per_task = 0.01")
    assert [len(t.ids) for t in dispatcher.run_pass(measured).tickets] == [20, 20, 20]


def test_the_cursor_is_remembered(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    waiting(a=100, b=100, c=100)
    one = role(batch_size=1)
    assert [set(passes.finished(one)) for _ in range(4)] == [{"a"}, {"b"}, {"c"}, {"a"}]
    assert rows("SELECT role, cursor FROM batchers") == [("work", "a")]
    assert passes.written("cursor_before, cursor_after") == [("", "a"), ("a", "b"), ("b", "c"), ("c", "a")]


@pytest.mark.parametrize("cursor", ["zzz", "bb", "b", ""])
def test_a_cursor_of_any_account_past_or_gone_is_harmless(
    passes: Passes, waiting: Waiting, rows: Rows, cursor: str
) -> None:
    """The seed's batcher stood still for good once its cursor was past the last account with work."""
    rows("INSERT INTO batchers (role, cursor) VALUES ('work', :cursor)", cursor=cursor)
    waiting(a=1000, b=1000, c=1000)
    assert passes.given() == {"a": 20, "b": 20, "c": 20}


def test_few_tasks_after_the_cursor_let_nobody_flood_the_pass(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    """The seed's batcher took all there was behind its cursor if that was no more than a batch."""
    rows("INSERT INTO batchers (role, cursor) VALUES ('work', 'b')")
    waiting(a=1000, b=1000, c=50)
    assert passes.given() == {"a": 20, "b": 20, "c": 20}


def test_the_rotation_keeps_its_order_however_many_policies_there_are(
    database: Database, waiting: Waiting, rows: Rows
) -> None:
    """Joining them in by a hash of the accounts would give back the policies' order."""
    rows(
        "INSERT INTO account_policies (account) SELECT 'a' || lpad(n::text, 4, '0') FROM generate_series(999, 1, -1) n"
    )
    waiting(**{f"a{n:04}": 1 for n in range(1, 100)})
    with database.transaction() as connection:
        seen = select.survey(connection, "work", "work")
        found = select.claimants(connection, "work", seen, free=60, depth=1)
    assert [c.account for c in found] == [f"a{n:04}" for n in range(1, 61)]


# -- what is due -------------------------------------------------------------------------------------------------------


def test_what_has_become_due_is_claimed_by_the_same_pass(passes: Passes, database: Database, rows: Rows) -> None:
    enqueued(database, new_task(account="a", delay=1000.0), new_task(account="b", delay=1000.0))
    assert passes.why_nothing() == "nothing is ready"
    rows("UPDATE worker_tasks SET scheduled_for = now() WHERE account = 'a'")
    assert passes.given() == {"a": 1}


def test_what_becomes_due_while_the_role_is_paused_is_made_ready(
    passes: Passes, database: Database, rows: Rows
) -> None:
    rows("INSERT INTO roles (role, definition, paused) VALUES ('work', '{}', true)")
    enqueued(database, new_task(delay=1000.0))
    rows("UPDATE worker_tasks SET scheduled_for = now()")
    assert passes.why_nothing() == "the role is paused"
    assert rows("SELECT waits_for FROM worker_tasks") == [(None,)]


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_crash_between_claim_and_publish_strands_nothing(
    app: Celeriac, dispatcher: Dispatcher, waiting: Waiting, rows: Rows
) -> None:
    """The seed's rows stayed scheduled: "manual cleanup may be needed"."""
    waiting(a=100, b=100)
    stranded = dispatcher.run_pass(ROLE)
    assert app.publisher.publish(stranded.tickets[:10])
    rows("UPDATE worker_tasks SET claimed_at = now() - interval '1 day' WHERE status = 'claimed'")
    assert sweeps.lost_tickets(app) == 50
    again = Dispatcher(app.database, app.publisher, "test")
    assert again.dispatch(role(batch_size=200)) == 190
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("claimed",)]
    assert len(app.publisher.queued("work") or ()) == 200


def test_a_pass_that_throws_leaves_nothing_claimed_and_the_next_one_works(
    passes: Passes, waiting: Waiting, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed's `inProgress` stayed true, and its cron was dead."""
    waiting(a=3)
    with monkeypatch.context() as broken:
        broken.setattr(claim, "record_pass", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            passes.given()
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("pending",)]
    assert passes.given() == {"a": 3}


def test_of_two_passes_at_once_one_finds_the_role_busy(
    passes: Passes, dispatcher: Dispatcher, database: Database, waiting: Waiting
) -> None:
    waiting(a=3)
    with database.transaction() as other:
        assert select.lock_pass(other, "work")
        assert dispatcher.run_pass(ROLE) == Pass(busy=True, why_nothing="another pass is under way")
        assert dispatcher.run_pass(role(name="another")).busy is False
    assert passes.given() == {"a": 3}


def test_a_row_that_somebody_has_locked_is_passed_over(passes: Passes, database: Database, waiting: Waiting) -> None:
    waiting(a=3)
    with database.transaction() as other:
        other.exec_driver_sql("SELECT FROM worker_tasks LIMIT 1 FOR UPDATE")
        assert passes.given() == {"a": 2}
    assert passes.given() == {"a": 1}


def test_what_redis_does_not_take_waits_again_at_once(
    dispatcher: Dispatcher, publisher: Recorder, waiting: Waiting, rows: Rows
) -> None:
    waiting(a=3)
    publisher.takes = False
    assert dispatcher.dispatch(ROLE) == 0
    assert rows("SELECT DISTINCT status, losses FROM worker_tasks") == [("pending", 0)]
    assert rows("SELECT DISTINCT kind, to_status FROM task_events") == [("unpublished", "pending")]
    publisher.takes = True
    assert dispatcher.dispatch(ROLE) == 3


def test_while_redis_is_left_alone_nothing_is_claimed(
    passes: Passes, publisher: Recorder, waiting: Waiting, rows: Rows
) -> None:
    waiting(a=3)
    publisher.is_open = False
    assert passes.why_nothing() == "Redis is not reachable"
    publisher.is_open = True
    assert passes.given() == {"a": 3}


# -- dispatch ----------------------------------------------------------------------------------------------------------


def test_an_eager_role_is_dispatched_until_nothing_is_left(
    dispatcher: Dispatcher, publisher: Recorder, waiting: Waiting
) -> None:
    waiting(a=130)
    assert dispatcher.dispatch(role(eager=True)) == 130
    assert len({i for t in publisher.published for i in t.ids}) == 130


def test_a_role_that_is_not_eager_gets_one_pass(dispatcher: Dispatcher, waiting: Waiting) -> None:
    waiting(a=130)
    assert dispatcher.dispatch(ROLE) == 60
    assert dispatcher.dispatch_if_due(ROLE) == 0


def test_an_eager_role_is_refilled_once_a_quarter_of_its_window_is_free(
    dispatcher: Dispatcher, database: Database, waiting: Waiting, rows: Rows
) -> None:
    window = role(window=8, eager=True)
    waiting(a=20)
    assert dispatcher.dispatch_if_due(window) == 8
    free = "UPDATE worker_tasks SET status = 'completed', completed_at = now() WHERE id IN (SELECT id FROM worker_tasks"
    rows(f"{free} WHERE status = 'claimed' LIMIT 2)")
    assert dispatcher.dispatch_if_due(window) == 0
    rows(f"{free} WHERE status = 'claimed' LIMIT 1)")
    assert dispatcher.dispatch_if_due(window) == 3


def test_due_work_is_work(dispatcher: Dispatcher, database: Database, rows: Rows) -> None:
    enqueued(database, new_task(delay=1000.0))
    assert dispatcher.has_work_and_room(ROLE) is False
    rows("UPDATE worker_tasks SET scheduled_for = now()")
    assert dispatcher.has_work_and_room(ROLE) is True
    rows("INSERT INTO roles (role, definition, paused) VALUES ('work', '{}', true)")
    assert dispatcher.has_work_and_room(ROLE) is False


# -- a task alone ------------------------------------------------------------------------------------------------------

#: What must not be for a lone task to start without a pass.
IN_THE_WAY = {
    "nothing": "SELECT",
    "another ready task": "INSERT INTO worker_tasks (task_id, role) VALUES ('other', 'work')",
    "sixteen active tasks": """INSERT INTO worker_tasks (task_id, role, status, token, claimed_at)
        SELECT n, 'work', 'claimed', gen_random_uuid(), now() FROM generate_series(1, 16) n""",
    "a paused role": "INSERT INTO roles (role, definition, paused) VALUES ('work', '{}', true)",
    "a paused account": "INSERT INTO account_policies (account, paused) VALUES ('a', true)",
    "a cap": "INSERT INTO account_policies (account, cap) VALUES ('a', 9)",
    "another role": "UPDATE worker_tasks SET role = 'other'",
    "its expiry": "UPDATE worker_tasks SET expires_at = now()",
    "its lock": "UPDATE worker_tasks SET lock_key = 'k', waits_for = 'lock'",
    "somebody's claim": "UPDATE worker_tasks SET status = 'claimed', token = gen_random_uuid(), claimed_at = now()",
}


@pytest.mark.parametrize("obstacle", IN_THE_WAY)
def test_a_lone_task_starts_without_a_pass_only_if_a_pass_could_decide_nothing_else(
    database: Database, rows: Rows, obstacle: str
) -> None:
    (task,) = enqueued(database, new_task(account="a"))
    rows(IN_THE_WAY[obstacle])
    token = str(uuid.uuid4())
    begun = started_alone(database, task.id, token)
    assert [(t.id, t.token) for t in begun] == ([(task.id, token)] if obstacle == "nothing" else [])


def test_a_lone_task_whose_start_got_no_answer_is_this_process_s_at_the_next_ask(database: Database) -> None:
    (task,) = enqueued(database, new_task())
    token = str(uuid.uuid4())
    assert len(started_alone(database, task.id, token)) == 1
    assert started_alone(database, task.id, str(uuid.uuid4()), again=True) == []
    assert [t.id for t in started_alone(database, task.id, token, again=True)] == [task.id]
    assert started_alone(database, task.id, token) == []


# -- what it writes down -----------------------------------------------------------------------------------------------


def test_a_pass_writes_down_what_it_saw_and_gave(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    policy(rows, "b", weight=2, cap=50)
    waiting(a=5, b=3)
    passes.given(role(batch_size=3))
    waiting(c=1)
    passes.given()
    columns = "role, by, free, claimants, given, cursor_before, cursor_after, why_nothing, repeated"
    first, second = passes.written(columns)
    a, b = {"account": "a", "waiting": 3}, {"account": "b", "waiting": 3, "weight": 2.0, "cap": 50}
    assert first == ("work", "test", 3, [a, b], {"a": 1, "b": 2}, "", "b", None, 0)
    a, b = {"account": "a", "waiting": 4, "holding": 1}, {**b, "waiting": 1, "holding": 2}
    c = {"account": "c", "waiting": 1}
    assert second == ("work", "test", 60, [c, a, b], {"a": 4, "b": 1, "c": 1}, "b", "a", None, 0)
    assert all(took > 0 for (took,) in passes.written("took_ms"))


def test_empty_passes_for_one_reason_are_one_row(passes: Passes, waiting: Waiting, rows: Rows) -> None:
    reasons = "SELECT why_nothing, repeated, last_at > at FROM passes ORDER BY id"
    for _ in range(3):
        assert passes.why_nothing() == "nothing is ready"
    assert rows(reasons) == [("nothing is ready", 2, True)]
    waiting(a=3)
    passes.given(role(window=2))
    for _ in range(2):
        assert passes.why_nothing(role(window=2)) == "the window is full"
    finish(rows)
    passes.finished()
    for _ in range(2):
        passes.why_nothing()
    assert [row[:2] for row in rows(reasons)] == [
        ("nothing is ready", 2), (None, 0), ("the window is full", 1), (None, 0), ("nothing is ready", 1)
    ]  # fmt: skip


def test_each_roles_empty_passes_are_its_own(passes: Passes) -> None:
    for name in ("one", "two", "one", "two"):
        passes.why_nothing(role(name=name))
    assert passes.written("role, repeated") == [("one", 1), ("two", 1)]


@pytest.mark.parametrize("seed", range(3))
def test_what_a_pass_decided_is_answered_by_replaying_it(
    passes: Passes, waiting: Waiting, rows: Rows, seed: int
) -> None:
    chance = random.Random(seed)
    for n in range(12):
        if chance.random() < 0.5:
            cap = chance.choice([None, 0, 7])
            policy(rows, f"a{n}", weight=chance.choice([0.5, 1, 3]), cap=cap, paused=chance.random() < 0.2)
    for _ in range(6):
        waiting(**{f"a{n}": chance.randint(1, 90) for n in chance.sample(range(12), 4)})
        passes.given(role(batch_size=chance.randint(1, 60), window=150))
        if chance.random() < 0.3:
            finish(rows)
    stored = passes.written("claimants, free, given, why_nothing")
    assert len(stored) >= 5
    for claimants, free, given, _ in stored:
        assert allocate([Claimant(**c) for c in claimants], free) == given
