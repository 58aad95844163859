"""Lock keys: at most one task leads a key, and as long as somebody waits for it, somebody does."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection

from celeriac import Celeriac
from celeriac.dispatch import promote
from celeriac.dispatch.passes import Dispatcher
from celeriac.enqueue.insert import Receipt, enqueue
from celeriac.operate import cancel
from celeriac.repair import hand_over
from celeriac.roles.role import Role
from celeriac.seam import enqueuer
from celeriac.store import look
from celeriac.store.connections import Database
from celeriac.store.started import Started
from tests.postgres.conftest import new_task
from tests.postgres.stages import again, claimed, enqueued, outcome, running, settle_in, settled, started
from tests.processes import PATIENCE, Rows, until

Put = Callable[..., Receipt]

WAITS = "SELECT id, coalesce(waits_for, '') FROM worker_tasks WHERE status = 'pending' ORDER BY id"


def leads(rows: Rows) -> list[int]:
    """The ids of the tasks that lead a lock: its heads, and who of the lock's tasks waits for nothing."""
    unfinished = "status IN ('pending', 'claimed', 'running')"
    leading = f"SELECT id FROM worker_tasks WHERE lock_key IS NOT NULL AND waits_for IS NULL AND {unfinished}"
    found = [row_id for (row_id,) in rows(f"{leading} ORDER BY id")]
    assert found == [head for (head,) in rows("SELECT head FROM locks ORDER BY head")]
    return found


def look_around(app: Celeriac) -> None:
    """As a worker does, again and again."""
    with app.database.transaction() as connection:
        look.look(connection)


#: Who finds a key that nobody handed over.
MAKES_UP = {"a worker's next look": look_around, "the sweep": hand_over.hand_over}


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_an_outcome_gives_the_lead_to_the_next(database: Database, rows: Rows, status: str) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    following = enqueued(database, new_task(lock_key="k"), new_task(lock_key="k"))
    assert settled(database, outcome(task, status)) == {task.id}
    assert leads(rows) == [following[0].id]


def test_a_task_that_is_not_kept_gives_the_lead_to_the_next(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    (following,) = enqueued(database, new_task(lock_key="k"))
    settled(database, outcome(task, keep=False))
    assert leads(rows) == [following.id]


def test_the_next_is_the_one_of_the_highest_priority_that_was_due_first(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    old, older = "2020-01-02T00:00:00Z", "2020-01-01T00:00:00Z"
    options = [{"at": old}, {"priority": 5, "at": old}, {"priority": 5, "at": older}, {"priority": 5, "at": older}]
    waiting = enqueued(database, *(new_task(lock_key="k", **given) for given in options))
    order = []
    for _ in waiting:
        settled(database, outcome(task))
        order += leads(rows)
        (task,) = started(database, *claimed(database))
    assert order == [waiting[n].id for n in (2, 3, 1, 0)]


def test_a_retry_gives_the_lead_to_the_next_and_gets_back_in_line(database: Database, rows: Rows) -> None:
    (first,) = running(database, new_task(lock_key="k"))
    (second,) = enqueued(database, new_task(lock_key="k"))
    settled(database, again(first))
    assert rows(WAITS) == [(first.id, "time"), (second.id, "")]
    with database.transaction() as connection:
        assert promote.promote_due(connection, "work", 10).count == 1
    assert rows(WAITS) == [(first.id, "lock"), (second.id, "")]
    settled(database, outcome(*started(database, *claimed(database))))
    assert leads(rows) == [first.id]


def test_a_retry_that_nobody_waits_behind_leads_again_once_it_is_due(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    settled(database, again(task))
    assert leads(rows) == []
    with database.transaction() as connection:
        promote.promote_due(connection, "work", 10)
    assert leads(rows) == [task.id]


def test_of_tasks_due_together_one_leads(database: Database, rows: Rows) -> None:
    receipts = enqueued(database, *(new_task(lock_key="k", delay=1000.0) for _ in range(3)))
    rows("UPDATE worker_tasks SET scheduled_for = now()")
    with database.transaction() as connection:
        assert promote.promote_due(connection, "work", 10).count == 3
    assert leads(rows) == [receipts[0].id]


def test_promoting_takes_the_longest_due_first_and_at_most_a_batch(database: Database, rows: Rows) -> None:
    """Beyond it only the first few of an account, for the sake of those behind another's flood."""
    receipts = enqueued(database, *(new_task(delay=1000.0 - n) for n in range(40)), new_task(delay=5000.0))
    rows("UPDATE worker_tasks SET scheduled_for = scheduled_for - interval '2000 s'")
    with database.transaction() as connection:
        assert promote.promote_due(connection, "work", 20).count == 20
    assert [row_id for row_id, waits in rows(WAITS) if not waits] == [r.id for r in receipts[20:40]]
    with database.transaction() as connection:
        assert promote.promote_due(connection, "another role", 99).count == 0
        assert promote.promote_due(connection, "work", 99).count == 20


@pytest.mark.parametrize("state", ["pending", "claimed"])
def test_cancelling_a_leader_gives_the_lead_to_the_next(database: Database, rows: Rows, state: str) -> None:
    first, second = enqueued(database, new_task(lock_key="k"), new_task(lock_key="k"))
    if state == "claimed":
        claimed(database)
    with database.transaction() as connection:
        cancel.cancel(connection, first.task_id, by="test", why="")
    assert leads(rows) == [second.id]


def test_cancelling_one_in_the_line_leaves_the_leader(database: Database, rows: Rows) -> None:
    first, second = enqueued(database, new_task(lock_key="k"), new_task(lock_key="k"))
    with database.transaction() as connection:
        cancel.cancel(connection, second.task_id, by="test", why="")
    assert leads(rows) == [first.id]


def test_leading_twice_leads_once(database: Database, put: Put, rows: Rows) -> None:
    first, _ = put(lock_key="k"), put(lock_key="k")
    with database.transaction() as connection:
        assert look.hand_over(connection, ["k", "nobody's"]) == set()
    assert leads(rows) == [first.id]


def test_one_in_the_line_that_somebody_holds_is_passed_over(database: Database, rows: Rows) -> None:
    """Somebody's open transaction holds the first in the line: whoever settles does not wait for it."""
    (task,) = running(database, new_task(lock_key="k"))
    first, second = enqueued(database, new_task(lock_key="k"), new_task(lock_key="k"))
    with database.transaction() as other:
        other.exec_driver_sql(f"SELECT FROM celeriac.behind WHERE id = {first.id} FOR UPDATE")
        settled(database, outcome(task))
        assert leads(rows) == [second.id]


@pytest.mark.parametrize("makes_up", MAKES_UP)
def test_a_line_that_somebody_holds_is_left_for_later(
    database: Database, app: Celeriac, rows: Rows, makes_up: str
) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    (following,) = enqueued(database, new_task(lock_key="k"))
    with database.transaction() as other:
        other.exec_driver_sql(f"SELECT FROM celeriac.behind WHERE id = {following.id} FOR UPDATE")
        settled(database, outcome(task))
        MAKES_UP[makes_up](app)
        assert leads(rows) == []
    MAKES_UP[makes_up](app)
    assert leads(rows) == [following.id]


def test_many_keys_whose_lines_somebody_holds_hold_nobody_up(database: Database, app: Celeriac, rows: Rows) -> None:
    """An open transaction that changes all that waits: a look that waited for each would take the lifeline's time."""
    tasks = [running(database, new_task(lock_key=f"k{n}"))[0] for n in range(50)]
    enqueued(database, *(new_task(lock_key=f"k{n}") for n in range(50)))
    with database.transaction() as other:
        other.exec_driver_sql("SELECT FROM celeriac.behind FOR UPDATE")
        begins = time.monotonic()
        settled(database, *map(outcome, tasks))
        look_around(app)
        assert time.monotonic() - begins < 2
        assert leads(rows) == []
    look_around(app)
    assert len(leads(rows)) == 50


def test_a_lead_that_is_being_taken_is_not_waited_for(database: Database, rows: Rows) -> None:
    first, second = enqueued(database, new_task(lock_key="k"), new_task(lock_key="k"))
    rows("UPDATE worker_tasks SET waits_for = 'lock'")
    with database.transaction() as one, database.transaction() as two:
        assert look.hand_over(one, ["k"]) == {"work"}
        assert look.hand_over(two, ["k"]) == set()
    assert leads(rows) == [first.id]
    assert rows(WAITS) == [(first.id, ""), (second.id, "lock")]


def test_leading_leaves_the_transactions_lock_timeout_alone(database: Database) -> None:
    """What follows in it, a follow-up's insert above all, may have to wait for others longer than a lead may."""
    (task,) = running(database, new_task(lock_key="k"))
    enqueued(database, new_task(lock_key="k"))
    with database.transaction() as connection:
        settle_in(connection, outcome(task))
        assert look.hand_over(connection, ["k"]) == {"work"}
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "0"


@pytest.mark.parametrize("makes_up", MAKES_UP)
def test_an_enqueue_that_saw_a_leader_which_settled_since_gets_the_lead_though_nobody_hears_of_its_commit(
    database: Database, app: Celeriac, rows: Rows, makes_up: str
) -> None:
    (leader,) = running(database, new_task(lock_key="k"))
    with database.transaction() as connection:
        (behind,) = enqueue(connection, [new_task(lock_key="k")], callers=True)
        settled(database, outcome(leader))
    assert behind.waits_for == "lock"
    assert leads(rows) == []
    MAKES_UP[makes_up](app)
    assert leads(rows) == [behind.id]
    assert hand_over.hand_over(app) == 0


Meanwhile = Callable[[Callable[[Connection], object], Callable[[], object]], None]


@pytest.fixture
def meanwhile(database: Database) -> Meanwhile:
    """Runs the first in a transaction, and commits it once the second is done, in a thread: nobody waits."""

    def run(first: Callable[[Connection], object], second: Callable[[], object]) -> None:
        with ThreadPoolExecutor(1) as thread, database.transaction() as connection:
            first(connection)
            thread.submit(second).result(PATIENCE / 2)

    return run


def test_a_retry_that_lines_up_while_its_leader_settles_is_led(
    database: Database, meanwhile: Meanwhile, rows: Rows
) -> None:
    retried, leader = _retry_behind_a_leader(database)
    meanwhile(
        lambda connection: promote.promote_due(connection, "work", 10), lambda: settled(database, outcome(leader))
    )
    assert leads(rows) == [retried]


def test_a_leader_that_settles_while_a_retry_lines_up_is_followed(
    database: Database, meanwhile: Meanwhile, rows: Rows
) -> None:
    retried, leader = _retry_behind_a_leader(database)

    def line_up() -> None:
        with database.transaction() as connection:
            promote.promote_due(connection, "work", 10)

    meanwhile(lambda connection: settle_in(connection, outcome(leader)), line_up)
    assert leads(rows) == [retried]


def _retry_behind_a_leader(database: Database) -> tuple[int, Started]:
    """The id of a retry that is due, and the task that leads its key meanwhile."""
    (retried,) = running(database, new_task(lock_key="k"))
    enqueued(database, new_task(lock_key="k"))
    settled(database, again(retried))
    (leader,) = started(database, *claimed(database))
    return retried.id, leader


@pytest.mark.parametrize("count", [1, 2])
def test_an_enqueue_beside_its_leaders_settle_leads(
    app: Celeriac, database: Database, meanwhile: Meanwhile, rows: Rows, count: int
) -> None:
    @app.task(role=f"stock {count}", lock_by="shop")
    def stock(shop: int) -> None: ...

    stock.delay(1)
    (leader,) = started(database, *claimed(database, f"stock {count}"), role=f"stock {count}")
    meanwhile(lambda connection: settle_in(connection, outcome(leader)), lambda: stock.bulk([(1,)] * count))
    assert len(leads(rows)) == 1


def test_a_bulk_that_takes_its_time_holds_nobody_up_who_settles(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(role="shelves", lock_by="shop", unique_by="item")
    def shelves(shop: int, item: int) -> None: ...

    monkeypatch.setattr(enqueuer, "BULK", 1)
    waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    shelves.delay(1, 1)
    (leader,) = started(database, *claimed(database, "shelves"), role="shelves")
    with ThreadPoolExecutor(2) as threads:
        with database.transaction() as connection:
            enqueue(connection, [new_task("shelves", unique_key="3")])
            bulk = threads.submit(shelves.bulk, [(1, 2), (1, 3)])
            until(lambda: rows(waits), "the bulk's second statement to wait")
            assert threads.submit(settled, database, outcome(leader)).result(PATIENCE / 2) == {leader.id}
        assert [receipt.is_new for receipt in bulk.result()] == [True, False]


def test_of_an_enqueue_and_one_beside_it_that_is_not_committed_one_leads_and_nobody_waits(
    database: Database, meanwhile: Meanwhile, rows: Rows
) -> None:
    receipts: list[Receipt] = []
    meanwhile(
        lambda connection: receipts.extend(enqueue(connection, [new_task(lock_key="k")])),
        lambda: receipts.extend(enqueued(database, new_task(lock_key="k"))),
    )
    first, second = receipts
    assert rows(WAITS) == [(first.id, "lock"), (second.id, "")], "the first to be committed leads"
    assert leads(rows) == [second.id]


def test_bulks_that_share_keys_wait_in_one_order(database: Database, rows: Rows) -> None:
    """What would make a deadlock: in the order given, the first has 4 and needs 3, the second has 3 and needs 4."""
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    first, second = (
        [new_task(lock_key="k", unique_key=key) for key in keys] for keys in (("4", "3b", "3"), ("3", "4", "5"))
    )
    with ThreadPoolExecutor(2) as threads:
        with database.transaction() as connection:
            (found,) = enqueue(connection, [new_task(unique_key="3b")])
            one = threads.submit(enqueued, database, *first)
            until(lambda: rows.one(blocked) == 1, "the first to wait for its second key")
            other = threads.submit(enqueued, database, *second)
            until(lambda: rows.one(blocked) == 2, "the second to wait, too")
        four, again, three = one.result()
    assert again.id == found.id
    assert [(r.id in (three.id, four.id), r.is_new) for r in other.result()] == [
        (True, False), (True, False), (False, True)
    ]  # fmt: skip
    assert leads(rows) == [three.id]


@pytest.mark.parametrize("callers", [True, False])
def test_of_a_bulk_in_which_the_first_of_a_key_waits_for_its_time_another_leads(
    database: Database, app: Celeriac, rows: Rows, callers: bool
) -> None:
    tasks = [new_task(lock_key="k", unique_key="1", delay=1000.0), new_task(lock_key="k", unique_key="2")]
    with database.transaction() as connection:
        _, due = enqueue(connection, tasks, callers=callers)
    if callers:
        look_around(app)
    assert due.waits_for == "lock", "until its commit is looked after"
    assert leads(rows) == [due.id]


def test_the_sweep_finds_every_key_without_a_leader(
    database: Database, app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hand_over, "BATCH", 4)
    enqueued(database, *(new_task(lock_key=f"k{n % 10}") for n in range(20)), new_task(lock_key=""))
    rows("UPDATE worker_tasks SET waits_for = 'lock' WHERE lock_key NOT IN ('k3', 'k4')")
    assert hand_over.hand_over(app) == 9
    assert len(leads(rows)) == 11


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
    """Nor does it lose its turn for good: it leads again where nobody else could."""
    paused, other = enqueued(database, new_task("idle", account="idle", lock_key="k"), new_task(lock_key="k"))
    rows(HELD_BACK[held_back])
    assert hand_over.hand_over(app) == 1
    assert leads(rows) == [other.id]
    assert hand_over.hand_over(app) == 0
    settled(database, outcome(*started(database, *claimed(database))))
    assert leads(rows) == [paused.id]
    assert hand_over.hand_over(app) == 0


@pytest.mark.parametrize("held_back", HELD_BACK)
def test_the_next_leader_is_one_that_can_run(database: Database, rows: Rows, held_back: str) -> None:
    (leader,) = running(database, new_task(lock_key="k"))
    first = new_task("idle", account="idle", lock_key="k", priority=9)
    _, second = enqueued(database, first, new_task(lock_key="k"))
    rows(HELD_BACK[held_back])
    settled(database, outcome(leader))
    assert leads(rows) == [second.id]


def test_a_task_that_runs_keeps_its_lock_though_its_role_is_paused(
    database: Database, app: Celeriac, rows: Rows
) -> None:
    (leader,) = running(database, new_task(lock_key="k"))
    enqueued(database, new_task("other", lock_key="k"))
    rows(PAUSE, role="work")
    assert hand_over.hand_over(app) == 0
    assert leads(rows) == [leader.id]


def test_a_pass_never_claims_two_tasks_of_a_key(database: Database, dispatcher: Dispatcher, rows: Rows) -> None:
    enqueued(database, *(new_task(lock_key=f"k{n % 3}") for n in range(12)))
    role = Role(name="work", chunk=1)
    given = []
    while tickets := dispatcher.run_pass(role).tickets:
        tasks = [task for ticket in tickets for task in started(database, ticket.ids, ticket.token)]
        given.append(len(tasks))
        settled(database, *map(outcome, tasks))
    assert given == [3, 3, 3, 3]
