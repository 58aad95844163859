"""Lock keys: a key has at most one head, and as long as somebody waits for it, it has one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac import Celeriac
from celeriac.dispatch import promote
from celeriac.dispatch.passes import Dispatcher
from celeriac.enqueue.insert import enqueue
from celeriac.enqueue.rows import Receipt
from celeriac.operate import cancel
from celeriac.repair import hand_over
from celeriac.roles.role import Role
from celeriac.settle.outcome import Outcome, Started
from celeriac.store import look
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.heads import WAITS, heads
from tests.postgres.stages import again, claimed, enqueued, looked, outcome, running, settle_in, settled, started
from tests.processes import Rows

Put = Callable[..., Receipt]


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_an_outcome_gives_its_key_to_the_next(database: Database, rows: Rows, status: str) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    following = enqueued(database, new_task(lock_key="k"), new_task(lock_key="k"))
    assert settled(database, outcome(task, status)) == {task.id}
    assert heads(rows) == [following[0].id]


@pytest.mark.parametrize("ends", [outcome, again])
def test_a_settle_hands_the_lock_over_itself(
    database: Database, rows: Rows, ends: Callable[[Started], Outcome]
) -> None:
    """Its process may die with its commit: nobody looks after this one."""
    (task,) = running(database, new_task(lock_key="k"))
    first, _ = enqueued(database, new_task(lock_key="k"), new_task(lock_key="k"))
    with database.engine.begin() as last_words:
        assert settle_in(last_words, ends(task)) == {task.id}
    assert heads(rows) == [first.id]
    assert rows("SELECT FROM looks") == []


def test_a_role_whose_task_was_handed_the_lock_is_told_after_the_commit(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[set[str]] = []
    monkeypatch.setattr(database, "on_ready", told.append)
    (task,) = running(database, new_task(lock_key="k"))
    enqueued(database, new_task("other", lock_key="k"))
    told.clear()
    with database.transaction() as connection:
        settle_in(connection, outcome(task))
        assert told == []
    assert told == [{"other"}]


def test_a_task_that_is_not_kept_gives_its_key_to_the_next(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    (following,) = enqueued(database, new_task(lock_key="k"))
    settled(database, outcome(task, keep=False))
    assert heads(rows) == [following.id]


def test_the_next_is_the_one_of_the_highest_priority_that_was_due_first(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    old, older = "2020-01-02T00:00:00Z", "2020-01-01T00:00:00Z"
    options = [{"at": old}, {"priority": 5, "at": old}, {"priority": 5, "at": older}, {"priority": 5, "at": older}]
    waiting = enqueued(database, *(new_task(lock_key="k", **given) for given in options))
    order = []
    for _ in waiting:
        settled(database, outcome(task))
        order += heads(rows)
        (task,) = started(database, *claimed(database))
    assert order == [waiting[n].id for n in (2, 3, 1, 0)]


def test_a_retry_gives_its_key_to_the_next_and_gets_back_in_line(database: Database, rows: Rows) -> None:
    (first,) = running(database, new_task(lock_key="k"))
    (second,) = enqueued(database, new_task(lock_key="k"))
    settled(database, again(first))
    assert rows(WAITS) == [(first.id, "time"), (second.id, "")]
    with database.transaction() as connection:
        assert promote.promote_due(connection, "work", 10).count == 1
    assert rows(WAITS) == [(first.id, "lock"), (second.id, "")]
    settled(database, outcome(*started(database, *claimed(database))))
    assert heads(rows) == [first.id]


def test_a_retry_that_nobody_waits_behind_is_the_head_again_once_it_is_due(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    settled(database, again(task))
    assert heads(rows) == []
    with database.transaction() as connection:
        promote.promote_due(connection, "work", 10)
    assert heads(rows) == [task.id]


def test_of_tasks_due_together_one_is_the_head(database: Database, rows: Rows) -> None:
    receipts = enqueued(database, *(new_task(lock_key="k", delay=1000.0) for _ in range(3)))
    rows("UPDATE worker_tasks SET scheduled_for = now()")
    with database.transaction() as connection:
        assert promote.promote_due(connection, "work", 10).count == 3
    assert heads(rows) == [receipts[0].id]


@pytest.mark.parametrize("state", ["pending", "claimed"])
def test_cancelling_a_head_gives_its_key_to_the_next(database: Database, rows: Rows, state: str) -> None:
    first, second = enqueued(database, new_task(lock_key="k"), new_task(lock_key="k"))
    if state == "claimed":
        claimed(database)
    with database.transaction() as connection:
        cancel.cancel(connection, first.task_id, by="test", why="")
    assert heads(rows) == [second.id]


def test_cancelling_one_in_the_line_leaves_the_head(database: Database, rows: Rows) -> None:
    first, second = enqueued(database, new_task(lock_key="k"), new_task(lock_key="k"))
    with database.transaction() as connection:
        cancel.cancel(connection, second.task_id, by="test", why="")
    assert heads(rows) == [first.id]


def test_a_key_that_has_a_head_gets_no_other(database: Database, put: Put, rows: Rows) -> None:
    first, _ = put(lock_key="k"), put(lock_key="k")
    with database.transaction() as connection:
        assert look.hand_over(connection, ["k", "nobody's"]) == set()
    assert heads(rows) == [first.id]


@pytest.mark.parametrize("callers", [True, False])
def test_of_a_bulk_in_which_the_first_of_a_key_waits_for_its_time_another_is_the_head(
    database: Database, app: Celeriac, rows: Rows, callers: bool
) -> None:
    tasks = [new_task(lock_key="k", unique_key="1", delay=1000.0), new_task(lock_key="k", unique_key="2")]
    with database.transaction() as connection:
        _, due = enqueue(connection, tasks, callers=(lambda _: set()) if callers else None)
    if callers:
        looked(database)
    assert due.waits_for == "lock", "until its commit is looked after"
    assert heads(rows) == [due.id]


def test_the_sweep_finds_every_key_without_a_head(
    database: Database, app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hand_over, "BATCH", 4)
    enqueued(database, *(new_task(lock_key=f"k{n % 10}") for n in range(20)), new_task(lock_key=""))
    rows("UPDATE worker_tasks SET waits_for = 'lock' WHERE lock_key NOT IN ('k3', 'k4')")
    assert hand_over.hand_over(app) == 9
    assert len(heads(rows)) == 11


PAUSE = "INSERT INTO roles (role, definition, paused) VALUES (:role, '{}', true)"

#: What holds back the tasks of the role `idle` and the account `idle`.
HELD_BACK = {
    "a paused role": "INSERT INTO roles (role, definition, paused) VALUES ('idle', '{}', true)",
    "a paused account": "INSERT INTO account_policies (account, paused) VALUES ('idle', true)",
    "a cap of 0": "INSERT INTO account_policies (account, cap) VALUES ('idle', 0)",
}


@pytest.mark.parametrize("held_back", HELD_BACK)
def test_what_is_held_back_keeps_no_lock_from_others(
    database: Database, app: Celeriac, rows: Rows, held_back: str
) -> None:
    """Nor does it lose its turn for good: it is the head again where nobody else could be."""
    paused, other = enqueued(database, new_task("idle", account="idle", lock_key="k"), new_task(lock_key="k"))
    rows(HELD_BACK[held_back])
    assert hand_over.hand_over(app) == 1
    assert heads(rows) == [other.id]
    assert hand_over.hand_over(app) == 0
    settled(database, outcome(*started(database, *claimed(database))))
    assert heads(rows) == [paused.id]
    assert hand_over.hand_over(app) == 0


@pytest.mark.parametrize("held_back", HELD_BACK)
def test_the_next_head_is_one_that_can_run(database: Database, rows: Rows, held_back: str) -> None:
    (head,) = running(database, new_task(lock_key="k"))
    first = new_task("idle", account="idle", lock_key="k", priority=9)
    _, second = enqueued(database, first, new_task(lock_key="k"))
    rows(HELD_BACK[held_back])
    settled(database, outcome(head))
    assert heads(rows) == [second.id]


def test_a_task_that_runs_keeps_its_lock_though_its_role_is_paused(
    database: Database, app: Celeriac, rows: Rows
) -> None:
    (head,) = running(database, new_task(lock_key="k"))
    enqueued(database, new_task("other", lock_key="k"))
    rows(PAUSE, role="work")
    assert hand_over.hand_over(app) == 0
    assert heads(rows) == [head.id]


def test_a_pass_never_claims_two_tasks_of_a_key(database: Database, dispatcher: Dispatcher, rows: Rows) -> None:
    enqueued(database, *(new_task(lock_key=f"k{n % 3}") for n in range(12)))
    role = Role(name="work", chunk=1)
    given = []
    while tickets := dispatcher.run_pass(role).tickets:
        tasks = [task for ticket in tickets for task in started(database, ticket.ids, ticket.token)]
        given.append(len(tasks))
        settled(database, *map(outcome, tasks))
    assert given == [3, 3, 3, 3]


@pytest.mark.parametrize("written", ["inserted", "updated"])
def test_one_that_was_put_behind_by_hand_is_the_head_with_the_next_look(
    database: Database, rows: Rows, written: str
) -> None:
    if written == "inserted":
        rows("INSERT INTO worker_tasks (task_id, role, lock_key, waits_for) VALUES ('t', 'work', 'k', 'lock')")
    else:
        enqueued(database, new_task(lock_key="k", delay=60.0))
        rows("UPDATE worker_tasks SET waits_for = 'lock', scheduled_for = now()")
    assert heads(rows) == []
    looked(database)
    assert len(heads(rows)) == 1
