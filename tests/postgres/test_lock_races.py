"""Lock keys beside open transactions: nobody waits for one, and whoever it kept from a key gets it afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection

from celeriac import Celeriac
from celeriac.dispatch import promote
from celeriac.enqueue import bulk as bulks
from celeriac.enqueue.insert import enqueue
from celeriac.enqueue.rows import Receipt
from celeriac.operate import prioritise
from celeriac.repair import hand_over
from celeriac.settle.outcome import Started
from celeriac.store import look
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.heads import WAITS, heads
from tests.postgres.stages import again, claimed, enqueued, looked, outcome, running, settle_in, settled, started
from tests.processes import PATIENCE, Rows, until

#: Advisory locks somebody of this database waits for: other tests have others.
IN_VAIN = """locktype = 'advisory' AND NOT granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""

#: Who finds a key that nobody handed over.
MAKES_UP: dict[str, Callable[[Celeriac], object]] = {
    "a worker's next look": lambda app: looked(app.database),
    "the sweep": hand_over.hand_over,
}


def test_one_in_the_line_that_somebody_holds_is_passed_over(database: Database, rows: Rows) -> None:
    """Somebody's open transaction holds the first in the line: whoever settles does not wait for it."""
    (task,) = running(database, new_task(lock_key="k"))
    first, second = enqueued(database, new_task(lock_key="k"), new_task(lock_key="k"))
    with database.transaction() as other:
        other.exec_driver_sql(f"SELECT FROM celeriac.behind WHERE id = {first.id} FOR UPDATE")
        settled(database, outcome(task))
        assert heads(rows) == [second.id]


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
        assert heads(rows) == []
    MAKES_UP[makes_up](app)
    assert heads(rows) == [following.id]


def test_many_keys_whose_lines_somebody_holds_hold_nobody_up(database: Database, app: Celeriac, rows: Rows) -> None:
    """An open transaction that changes all that waits: a look that waited for each would take the lifeline's time."""
    tasks = [running(database, new_task(lock_key=f"k{n}"))[0] for n in range(50)]
    enqueued(database, *(new_task(lock_key=f"k{n}") for n in range(50)))
    with database.transaction() as other:
        other.exec_driver_sql("SELECT FROM celeriac.behind FOR UPDATE")
        begins = time.monotonic()
        settled(database, *map(outcome, tasks))
        looked(database)
        assert time.monotonic() - begins < 2
        assert heads(rows) == []
    looked(database)
    assert len(heads(rows)) == 50


def test_a_settle_whose_snapshot_is_older_than_the_line_leaves_it_to_the_look(database: Database, rows: Rows) -> None:
    """A handler's session may be of any isolation: what others did to the line is no reason to undo its writes."""
    (task,) = running(database, new_task(lock_key="k"))
    (following,) = enqueued(database, new_task(lock_key="k"))
    repeatable = database.engine.execution_options(isolation_level="REPEATABLE READ")
    with repeatable.begin() as session:
        session.exec_driver_sql("SELECT FROM celeriac.behind")
        rows(f"UPDATE worker_tasks SET priority = 9 WHERE id = {following.id}")
        assert settle_in(session, outcome(task)) == {task.id}
    assert heads(rows) == []
    looked(database)
    assert heads(rows) == [following.id]


def test_who_lines_up_while_the_head_settles_is_found_by_a_look_though_the_settlers_process_dies(
    database: Database, rows: Rows
) -> None:
    """Its look after the commit would have been the last: the enqueue's had seen a head, and forgot the key."""
    (task,) = running(database, new_task(lock_key="k"))
    with database.engine.begin() as dies:
        assert settle_in(dies, outcome(task)) == {task.id}
        (following,) = enqueued(database, new_task(lock_key="k"))
        looked(database)
    assert heads(rows) == []
    looked(database)
    assert heads(rows) == [following.id]
    looked(database)
    assert rows("SELECT FROM looks") == []


@pytest.fixture
def changed(database: Database, rows: Rows) -> Callable[[Callable[[], object]], None]:
    """`changed(hands_over)`: while it chooses among who waits, somebody moves them to another place in the line."""
    choosing = 4711
    rows(
        "CREATE OR REPLACE FUNCTION celeriac.held_back(of_role text, of_account text) RETURNS SETOF boolean "
        f"LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared({choosing}); END $$"
    )

    def change(hands_over: Callable[[], object]) -> None:
        with ThreadPoolExecutor(1) as threads, database.transaction() as other:
            other.exec_driver_sql(f"SELECT pg_advisory_xact_lock({choosing})")
            handing = threads.submit(hands_over)
            until(lambda: rows(f"SELECT FROM pg_locks WHERE objid = {choosing} AND {IN_VAIN}"), "it to choose")
            with database.transaction() as connection:
                waiting = connection.exec_driver_sql("SELECT id, celeriac.hold(ARRAY[id], true) FROM celeriac.behind")
                prioritise.prioritise(connection, {row.id: 9 for row in waiting}, by="test")
            other.exec_driver_sql("COMMIT; BEGIN")
            handing.result(PATIENCE)

    return change


def test_a_line_that_changes_while_a_settle_chooses_is_left_to_the_look(
    database: Database, rows: Rows, changed: Callable[[Callable[[], object]], None]
) -> None:
    (task,) = running(database, new_task(lock_key="k"))
    (following,) = enqueued(database, new_task(lock_key="k"))
    changed(lambda: settled(database, outcome(task)))
    assert heads(rows) == [following.id]


def test_a_line_that_changes_while_a_look_chooses_is_looked_at_again(
    database: Database, rows: Rows, changed: Callable[[Callable[[], object]], None]
) -> None:
    (following,) = enqueued(database, new_task(lock_key="k"))
    rows("UPDATE worker_tasks SET waits_for = 'lock'")
    rows("INSERT INTO looks VALUES ('k')")
    changed(lambda: looked(database))
    looked(database)
    assert heads(rows) == [following.id]


def test_a_key_that_is_being_taken_is_not_waited_for(database: Database, rows: Rows) -> None:
    first, second = enqueued(database, new_task(lock_key="k"), new_task(lock_key="k"))
    rows("UPDATE worker_tasks SET waits_for = 'lock'")
    with database.transaction() as one, database.transaction() as two:
        assert look.hand_over(one, ["k"]) == {"work"}
        assert look.hand_over(two, ["k"]) == set()
    assert heads(rows) == [first.id]
    assert rows(WAITS) == [(first.id, ""), (second.id, "lock")]


def test_leading_leaves_the_transactions_lock_timeout_alone(database: Database, rows: Rows) -> None:
    """What follows in it, a follow-up's insert above all, may have to wait for others longer than a hand-over may."""
    enqueued(database, new_task(lock_key="k"))
    rows("UPDATE worker_tasks SET waits_for = 'lock'")
    with database.transaction() as connection:
        assert look.hand_over(connection, ["k"]) == {"work"}
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "2s"


@pytest.mark.parametrize("makes_up", MAKES_UP)
def test_an_enqueue_that_saw_a_head_which_settled_since_becomes_the_head_though_nobody_hears_of_its_commit(
    database: Database, app: Celeriac, rows: Rows, makes_up: str
) -> None:
    (head,) = running(database, new_task(lock_key="k"))
    with database.transaction() as connection:
        (behind,) = enqueue(connection, [new_task(lock_key="k")], callers=lambda _: set())
        settled(database, outcome(head))
    assert behind.waits_for == "lock"
    assert heads(rows) == []
    MAKES_UP[makes_up](app)
    assert heads(rows) == [behind.id]
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


def test_a_retry_that_lines_up_while_its_head_settles_gets_the_key(
    database: Database, meanwhile: Meanwhile, rows: Rows
) -> None:
    retried, head = _retry_behind_a_head(database)
    meanwhile(lambda connection: promote.promote_due(connection, "work", 10), lambda: settled(database, outcome(head)))
    assert heads(rows) == [retried]


def test_a_head_that_settles_while_a_retry_lines_up_is_followed(
    database: Database, meanwhile: Meanwhile, rows: Rows
) -> None:
    retried, head = _retry_behind_a_head(database)

    def line_up() -> None:
        with database.transaction() as connection:
            promote.promote_due(connection, "work", 10)

    meanwhile(lambda connection: settle_in(connection, outcome(head)), line_up)
    assert heads(rows) == [retried]


def _retry_behind_a_head(database: Database) -> tuple[int, Started]:
    """The id of a retry that is due, and the task that is its key's head meanwhile."""
    (retried,) = running(database, new_task(lock_key="k"))
    enqueued(database, new_task(lock_key="k"))
    settled(database, again(retried))
    (head,) = started(database, *claimed(database))
    return retried.id, head


@pytest.mark.parametrize("count", [1, 2])
def test_an_enqueue_beside_its_heads_settle_is_the_head(
    app: Celeriac, database: Database, meanwhile: Meanwhile, rows: Rows, count: int
) -> None:
    @app.task(role=f"stock {count}", lock_by="shop")
    def stock(shop: int) -> None: ...

    stock.delay(1)
    (head,) = started(database, *claimed(database, f"stock {count}"), role=f"stock {count}")
    meanwhile(lambda connection: settle_in(connection, outcome(head)), lambda: stock.bulk([(1,)] * count))
    assert len(heads(rows)) == 1


def test_a_bulk_that_takes_its_time_holds_nobody_up_who_settles(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(role="shelves", lock_by="shop", unique_by="item")
    def shelves(shop: int, item: int) -> None: ...

    monkeypatch.setattr(bulks, "BULK", 1)
    waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    shelves.delay(1, 1)
    (head,) = started(database, *claimed(database, "shelves"), role="shelves")
    with ThreadPoolExecutor(2) as threads:
        with database.transaction() as connection:
            enqueue(connection, [new_task("shelves", unique_key="3")])
            bulk = threads.submit(shelves.bulk, [(1, 2), (1, 3)])
            until(lambda: rows(waits), "the bulk's second statement to wait")
            assert threads.submit(settled, database, outcome(head)).result(PATIENCE / 2) == {head.id}
        assert [receipt.is_new for receipt in bulk.result()] == [True, False]


def test_of_an_enqueue_and_one_beside_it_that_is_not_committed_one_is_the_head_and_nobody_waits(
    database: Database, meanwhile: Meanwhile, rows: Rows
) -> None:
    receipts: list[Receipt] = []
    meanwhile(
        lambda connection: receipts.extend(enqueue(connection, [new_task(lock_key="k")])),
        lambda: receipts.extend(enqueued(database, new_task(lock_key="k"))),
    )
    first, second = receipts
    assert rows(WAITS) == [(first.id, "lock"), (second.id, "")], "the first to be committed is the head"
    assert heads(rows) == [second.id]


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
    assert heads(rows) == [three.id]
