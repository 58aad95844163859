"""Bulks: what a filter meant at an instant is moved, each task once, whoever works on it and whoever is killed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from celeriac import Celeriac, insights
from celeriac.enqueue.rows import Receipt
from celeriac.errors import IllegalMove, Unknown
from celeriac.insights import Filter
from celeriac.operate import PATIENCE, bulks, steer
from celeriac.repair import bulks as works
from celeriac.repair.prune import prune_finished
from celeriac.store.connections import Database
from tests.postgres.finished import fail
from tests.processes import Rows, until

Put = Callable[..., Receipt]

FAILED = Filter(role="work", statuses=["failed"])

#: How often each task was retried.
RETRIED = "SELECT count(*) FROM celeriac.task_events WHERE kind = 'retry_asked' GROUP BY task"

WAITS_FOR_A_LOCK = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several pages and batches of few tasks."""
    monkeypatch.setattr(steer, "BATCH", 20)
    monkeypatch.setattr(works, "PAGE", 30)


def asked(database: Database, move: str = "retry", wanted: Filter | str = FAILED, **more: Any) -> int:
    with database.transaction() as connection:
        return works.ask(connection, move, wanted, by="ann", **more)


def shown(database: Database, bulk: int) -> dict[str, Any]:
    with database.reading() as connection:
        return insights.bulk(connection, bulk)


def figures(database: Database, bulk: int) -> tuple[Any, ...]:
    found = shown(database, bulk)
    return tuple(found[name] for name in ("state", "asked", "done", "skipped", "left"))


def test_just_those_that_were_there_are_moved_each_once(database: Database, rows: Rows) -> None:
    fail(rows, 100, "boom")
    with database.reading() as connection:
        at = insights.moment(connection)
    fail(rows, 30, "boom")
    bulk = asked(database, at=at, why="mended")
    assert works.work(database) == 100
    assert figures(database, bulk) == ("done", 100, 100, 0, 0)
    assert rows("SELECT status, count(*) FROM worker_tasks GROUP BY 1 ORDER BY 1") == [("failed", 30), ("pending", 100)]
    assert set(rows(RETRIED)) == {(1,)}
    assert rows("SELECT by, action, after ->> 'asked', why FROM celeriac.audit WHERE kind = 'bulk' ORDER BY id") == [
        ("ann", "bulk retry", None, "mended"), ("ann", "end", "100", "mended"),
    ]  # fmt: skip
    assert rows("SELECT * FROM celeriac.bulk_tasks") == []


def test_what_fails_meanwhile_is_left_alone(database: Database, put: Put, rows: Rows) -> None:
    """Though it was there before."""
    task = put().id
    fail(rows, 5, "boom")
    bulk = asked(database)
    rows("UPDATE worker_tasks SET status = 'failed', completed_at = clock_timestamp() WHERE id = :id", id=task)
    works.work(database)
    assert figures(database, bulk) == ("done", 5, 5, 0, 0)
    assert rows("SELECT status FROM worker_tasks WHERE id = :id", id=task) == [("failed",)]


def test_whoever_is_killed_leaves_what_the_next_one_goes_on_with(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each statement of a step once: as a killed process leaves it, as Postgres rolls back for both."""
    fail(rows, 70, "boom")
    bulk = asked(database)

    class Killed(BaseException):
        pass

    def kill(*_: Any, **__: Any) -> Any:
        raise Killed

    for module, name in ((bulks, "gather"), (steer, "retry"), (bulks, "_note"), (bulks, "_end")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, kill)
            patch.setitem(bulks.MOVES, "retry", steer.retry)
            with pytest.raises(Killed):
                works.work(database)
        works.step(database)
    works.work(database)
    assert figures(database, bulk) == ("done", 70, 70, 0, 0)
    assert set(rows(RETRIED)) == {(1,)}


def test_several_at_once_share_the_work(database: Database, rows: Rows) -> None:
    fail(rows, 200, "boom")
    bulk = asked(database)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(works.work, [database] * 4))
    works.work(database)
    assert figures(database, bulk) == ("done", 200, 200, 0, 0)
    assert set(rows(RETRIED)) == {(1,)}


def test_one_that_is_stopped_stops_after_its_batch(app: Celeriac, database: Database, rows: Rows) -> None:
    fail(rows, 60, "boom")
    bulk = asked(database)
    until(lambda: shown(database, bulk)["state"] == "moving" or not works.step(database), "it to be gathered")
    works.step(database)
    with database.transaction() as connection:
        bulks.stop(connection, bulk, by="bob", why="wrong ones")
    assert works.work(database) == 0
    assert figures(database, bulk) == ("stopped", 60, 20, 0, 40)
    assert rows("SELECT by, action, why FROM celeriac.audit WHERE kind = 'bulk' ORDER BY id DESC LIMIT 1") == [
        ("bob", "stop", "wrong ones")
    ]
    with pytest.raises(IllegalMove, match="is stopped"), database.transaction() as connection:
        bulks.stop(connection, bulk, by="bob")
    with pytest.raises(Unknown), database.transaction() as connection:
        bulks.stop(connection, bulk + 1, by="bob")
    rows("UPDATE celeriac.bulk_actions SET ended_at = now() - interval '31 days'")
    prune_finished(app)
    assert rows("SELECT (SELECT count(*) FROM celeriac.bulk_tasks), (SELECT count(*) FROM celeriac.bulk_actions)") == [
        (0, 0)
    ]


def test_one_that_waits_for_a_locked_task_is_stopped_within_an_operators_patience(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by whoever waits for its row since before the step waited for the task's."""

    def move(*given: Any) -> int:
        until(lambda: rows.one(WAITS_FOR_A_LOCK) == 1, "the operator to wait for the bulk's row")
        return real(*given)

    fail(rows, 1, "boom")
    bulk = asked(database)
    works.step(database)
    real = bulks.move_some
    monkeypatch.setattr(bulks, "move_some", move)
    with ThreadPoolExecutor(1) as beside, rows.engine.connect() as somebody:
        somebody.exec_driver_sql("BEGIN")
        somebody.exec_driver_sql("SELECT FROM celeriac.history FOR UPDATE")
        stepped = beside.submit(works.step, database)
        free = "SELECT FROM celeriac.bulk_actions FOR UPDATE SKIP LOCKED"
        until(lambda: not rows(free), "the step to hold the bulk's row")
        with database.transaction(patience=PATIENCE) as connection:
            bulks.stop(connection, bulk, by="bea")
        somebody.exec_driver_sql("ROLLBACK")
        stepped.result()
    assert figures(database, bulk)[:3] == ("stopped", 1, 0)


def test_what_has_moved_on_is_skipped_with_its_reason(database: Database, rows: Rows) -> None:
    fail(rows, 3, "boom")
    first, second, third = (task for (task,) in rows("SELECT id FROM worker_tasks ORDER BY id"))
    bulk = asked(database)
    works.step(database)
    with database.transaction() as connection:
        steer.retry(connection, [first], by="bob")
    rows("DELETE FROM celeriac.history WHERE id = :id", id=second)
    works.work(database)
    assert figures(database, bulk) == ("done", 3, 1, 2, 0)
    assert shown(database, bulk)["skips"] == [
        {"id": first, "reason": "the task is pending: only what failed or was cancelled can be retried"},
        {"id": second, "reason": "it is not here any more"},
    ]
    assert shown(database, bulk)["reasons"] == {skip["reason"]: 1 for skip in shown(database, bulk)["skips"]}
    assert rows("SELECT status FROM worker_tasks WHERE id = :id", id=third) == [("pending",)]


def test_of_what_is_skipped_so_many_reasons_are_kept(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulks, "KEPT_REFUSALS", 25)
    fail(rows, 60, "boom")
    bulk = asked(database)
    until(lambda: shown(database, bulk)["state"] == "moving" or not works.step(database), "it to be gathered")
    rows("DELETE FROM celeriac.history")
    works.work(database)
    assert figures(database, bulk) == ("done", 60, 0, 60, 0)
    assert len(shown(database, bulk)["skips"]) == 25, "two batches of 20 come to more"
    assert shown(database, bulk)["reasons"] == {"it is not here any more": 60}


def test_reasons_that_differ_in_names_and_numbers_alone_are_counted_as_one(
    database: Database, rows: Rows, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulks, "REASONS", 1)
    fail(rows, 3, "boom")
    rows("UPDATE celeriac.history SET unique_key = 'key ' || id")
    for (key,) in rows("SELECT unique_key FROM celeriac.history ORDER BY id LIMIT 2"):
        put(unique_key=str(key))
    bulk = asked(database)
    until(lambda: shown(database, bulk)["state"] == "moving" or not works.step(database), "it to be gathered")
    rows("DELETE FROM celeriac.history WHERE id = (SELECT max(id) FROM celeriac.history)")
    works.work(database)
    assert shown(database, bulk)["reasons"] == {"task # has its unique key '' by now": 2, "another reason": 1}


def test_one_that_cannot_go_on_says_why_and_keeps_no_other_from_it(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "PATIENCE", 0.1)
    fail(rows, 1, "boom")
    fail(rows, 5, "boom", role="other")
    held, other = asked(database), asked(database, wanted=Filter(role="other"))
    with rows.engine.connect() as somebody:
        somebody.exec_driver_sql("BEGIN")
        somebody.exec_driver_sql("SELECT FROM celeriac.history WHERE role = 'work' FOR UPDATE")
        assert works.work(database) == 5
        somebody.exec_driver_sql("ROLLBACK")
    assert "somebody's open transaction" in shown(database, held)["trouble"]
    assert figures(database, other) == ("done", 5, 5, 0, 0)
    assert works.work(database) == 1
    assert (shown(database, held)["state"], shown(database, held)["trouble"]) == ("done", None)


def test_a_step_that_fails_is_told_without_what_only_the_log_should_know(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fail(rows, 1, "boom")
    bulk = asked(database)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a secret")

    with monkeypatch.context() as patch:
        patch.setattr(insights, "matching_page", broken)
        assert works.work(database) == 0
    assert "the log of the process that worked on it has the reason" in shown(database, bulk)["trouble"]
    assert "a secret" in caplog.text
    assert works.work(database) == 1


def test_what_starts_while_it_is_gathered_is_gathered_once(database: Database, put: Put, rows: Rows) -> None:
    task = put().id
    bulk = asked(database, "cancel", Filter(role="work"))
    works.step(database)
    rows("""UPDATE worker_tasks SET status = 'running', token = gen_random_uuid(), claimed_at = now(),
        started_at = now(), last_heartbeat_at = now(), worker_id = 'w'""")
    works.work(database)
    assert figures(database, bulk) == ("done", 1, 1, 0, 0)
    assert rows("SELECT count(*) FROM celeriac.task_events WHERE task = :task AND by = 'ann'", task=task) == [(1,)]
    assert rows("SELECT DISTINCT kind FROM celeriac.audit") == [("bulk",)]


def test_whoever_asks_while_one_works_is_seen_to(database: Database, rows: Rows) -> None:
    fail(rows, 20, "boom")
    first = asked(database)
    threads = [works.start(database) for _ in range(2)]
    assert [thread is None for thread in threads] == [False, True]
    until(lambda: shown(database, first)["state"] == "done", "the first to end")
    fail(rows, 20, "boom")
    second = asked(database)
    works.start(database)
    until(lambda: shown(database, second)["state"] == "done", "the second to end")


def test_a_server_goes_on_with_what_was_left(database: Database, rows: Rows) -> None:
    """As it starts, and with what others leave meanwhile."""
    fail(rows, 50, "boom")
    first = asked(database)
    works.step(database)
    ending = threading.Event()
    server = works.BulkWorker(database, 0.05, ending)
    server.start()
    until(lambda: shown(database, first)["state"] == "done", "what was left to be done")
    fail(rows, 5, "boom")
    second = asked(database)
    until(lambda: shown(database, second)["state"] == "done", "what was left meanwhile to be done")
    ending.set()
    server.join()
    assert set(rows(RETRIED)) == {(1,)}


@pytest.fixture(autouse=True)
def ended(database: Database) -> Iterator[None]:
    """No thread of a test works on another's database."""
    yield
    until(lambda: not works._working.locked(), "the thread to end")
