"""Celery's events tell of rows: by their own ids, what SQL says of them, and nothing of tickets."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import redis

from celeriac.operate import policies
from tests.end_to_end.kept import alone, database_url, kept, redis_url, worker
from tests.end_to_end.listener import Listener, listening
from tests.processes import Rows, Running, until

__all__ = ["alone", "database_url", "kept", "redis_url", "worker"]

Worker = Callable[..., Running]

#: Celery's word for each of ours.
STATE = {"completed": "SUCCESS", "failed": "FAILURE", "cancelled": "REVOKED"}


@pytest.fixture
def listener(redis_url: str) -> Iterator[Listener]:
    with listening(redis_url) as listener:
        yield listener


def test_events_agree_with_sql_and_no_ticket_is_seen(
    shop: ModuleType, worker: Worker, rows: Rows, listener: Listener
) -> None:
    """50 tasks, of which 3 fail, and 8 are retried once or twice."""
    running = worker("-c", "1", "-E")
    good = [shop.add.delay(n).id for n in range(39)]
    bad = [shop.permanent.delay().id for _ in range(3)]
    again = [shop.flaky.delay(n % 2 + 1).id for n in range(8)]
    until(lambda: rows.one("SELECT count(*) FROM history") == 50, "all to end")
    until(lambda: len([s for s in listener.states().values() if s in STATE.values()]) == 50, "all to be told", 20)
    assert listener.states() == {str(i): STATE[str(s)] for i, s in rows("SELECT task_id, status FROM history")}
    assert {i for i, s in listener.states().items() if s == "FAILURE"} == set(bad)
    retried = [e for e in listener.heard if e["type"] == "task-retried"]
    assert {e["uuid"] for e in retried} == set(again)
    assert len(retried) == rows.one("SELECT sum(retry_count) FROM history") == 12
    assert {e["name"] for e in listener.heard if "uuid" in e} == {"add", "permanent", "flaky"}
    assert listener.kinds(good[0]) == ["task-received", "task-started", "task-succeeded"]
    assert listener.kinds(again[1]) == ["task-received", "task-started", "task-retried"] * 2 + [
        "task-received", "task-started", "task-succeeded",
    ]  # fmt: skip
    told = listener.state.tasks[good[3]]
    assert (told.args, told.kwargs, told.result) == ("[]", "{'a': 3}", "4")
    assert told.runtime < 5
    assert told.worker.hostname.startswith("celery@")
    failed = listener.state.tasks[bad[0]]
    assert failed.exception == "Permanent('no use')"
    assert "in permanent" in failed.traceback
    assert "celeriac.ticket" not in running.printed()


def test_a_task_that_takes_long_is_shown_as_started(shop: ModuleType, worker: Worker, listener: Listener) -> None:
    worker("-c", "1", "-E")
    task = shop.slow.delay(30.0).id
    listener.until(task, "STARTED")
    shop.app.cancel(task)
    assert listener.until(task, "REVOKED").terminated is True


def test_what_is_handed_back_is_not_held_any_more(
    shop: ModuleType, worker: Worker, rows: Rows, listener: Listener
) -> None:
    """One task of a ticket takes long: the others go elsewhere, and Flower's count of what a worker holds goes down."""
    worker("-c", "1", "-E")
    ids = [task.id for task in shop.mixed.bulk([(0.6,)] * 3)]
    for task in ids:
        listener.until(task, "SUCCESS")
    assert any("task-rejected" in listener.kinds(task) for task in ids)
    for task in ids:
        kinds = listener.kinds(task)
        assert kinds.count("task-received") - kinds.count("task-rejected") == kinds.count("task-started") == 1


def test_what_ends_in_sql_is_told_too(shop: ModuleType, worker: Worker, rows: Rows, listener: Listener) -> None:
    """By whoever cancels, with whatever: no worker had the task."""
    worker("-c", "1", "-E")
    until(lambda: redis_of(shop).get("celeriac:herald:upto"), "the herald's first look")
    planned = shop.add.apply_async((1,), countdown=1000)
    by_sql = shop.add.apply_async((2,), countdown=1000)
    planned.revoke()
    rows("SELECT celeriac.cancel(ARRAY(SELECT id FROM tasks WHERE task_id = :id), 'cancel', 'no', 'dba')", id=by_sql.id)
    told = listener.until(planned.id, "REVOKED")
    assert (told.name, told.kwargs) == ("add", "{'a': 1}")
    assert told.worker.hostname.startswith("celery@")
    listener.until(by_sql.id, "REVOKED")
    assert listener.kinds(by_sql.id) == ["task-revoked"]


def redis_of(shop: ModuleType) -> redis.Redis:
    return redis.Redis.from_url(shop.app.conf.broker_url)


def test_a_lost_process_and_a_hard_limit_are_told(
    shop: ModuleType, worker: Worker, rows: Rows, listener: Listener
) -> None:
    running = worker("-c", "1", "-E")
    until(lambda: redis_of(shop).get("celeriac:herald:upto"), "the herald's first look")
    lost = shop.slow.delay(3.0).id
    listener.until(lost, "STARTED")
    (child,) = running.children()
    with shop.app.database.transaction() as connection:
        policies.pause_role(connection, "slow", by="test")
    os.kill(child, signal.SIGKILL)
    listener.until(lost, "RETRY")
    with shop.app.database.transaction() as connection:
        policies.resume_role(connection, "slow", by="test")
    listener.until(lost, "SUCCESS")
    assert listener.kinds(lost) == [
        "task-received", "task-started", "task-retried", "task-received", "task-started", "task-succeeded",
    ]  # fmt: skip
    (again,) = [e for e in listener.heard if e["type"] == "task-retried"]
    assert again["exception"] == "its process was lost"
    (child,) = running.children()
    at_once = shop.slow.delay(2.0).id
    listener.until(at_once, "STARTED")
    os.kill(child, signal.SIGKILL)
    listener.until(at_once, "SUCCESS")
    assert listener.kinds(at_once).count("task-retried") == 0, "told late, it would seem to wait while it runs"
    limited = shop.limited.delay(stubborn=True).id
    assert listener.until(limited, "FAILURE").exception.startswith("TimeLimitExceeded")
    assert {e["hostname"] for e in listener.heard if "uuid" in e} == {again["hostname"]}, "one worker is all there is"


def test_masked_arguments_stay_masked(shop: ModuleType, worker: Worker, listener: Listener) -> None:
    worker("-c", "1", "-E")
    task = shop.add.apply_async((1,), {"b": 41}, argsrepr="(***)", kwargsrepr="{'b': '***'}")
    told = listener.until(task.id, "SUCCESS")
    assert (told.args, told.kwargs, told.result) == ("(***)", "{'b': '***'}", "42")
    half = shop.add.apply_async((1,), {"b": 41}, argsrepr="(***)")
    assert listener.until(half.id, "SUCCESS").kwargs == "..."


def test_what_a_worker_that_stops_hands_back_is_told(
    shop: ModuleType, worker: Worker, rows: Rows, listener: Listener
) -> None:
    """Else it would be shown as started for ever, by a worker that has gone."""
    running = worker("-c", "1", "-E")
    long = shop.slow.delay(60.0).id
    listener.until(long, "STARTED")
    running.process.send_signal(signal.SIGTERM)
    assert listener.until(long, "RETRY").exception == "its worker stopped"
    assert rows("SELECT status FROM worker_tasks WHERE task_id = :id", id=long) == [("pending",)]


def test_nothing_is_told_until_somebody_asks(shop: ModuleType, worker: Worker, rows: Rows, listener: Listener) -> None:
    """As Flower does every five seconds."""
    worker("-c", "1")
    assert shop.add.delay(1).get(timeout=20) == 2
    assert not listener.states()
    (reply,) = listener.app.control.enable_events(reply=True)
    assert [*reply.values()] == [{"ok": "task events enabled"}]
    task = shop.add.delay(2)
    listener.until(task.id, "SUCCESS")
    assert set(listener.states()) == {task.id}
    listener.app.control.disable_events(reply=True)
    silent = shop.add.delay(3)
    assert silent.get(timeout=20) == 4
    assert set(listener.states()) == {task.id}


def clients(client: redis.Redis) -> set[str]:
    """Who is connected to this test's database of Redis."""
    here = str(client.get_connection_kwargs()["db"])
    return {one["id"] for one in client.client_list() if one["db"] == here}


@pytest.mark.usefixtures("alone")
def test_what_was_asked_for_lasts_longer_than_a_connection(
    shop: ModuleType, worker: Worker, redis_url: str, listener: Listener
) -> None:
    client = redis_of(shop)
    before = clients(client)
    running = worker("-c", "1")
    its = clients(client) - before
    listener.app.control.enable_events(reply=True)
    connected = running.printed().count("Connected to redis")
    for one in its:
        client.client_kill_filter(_id=one)
    until(lambda: running.printed().count("Connected to redis") > connected, "the worker to connect again")
    with listening(redis_url) as again:
        task = shop.add.delay(1)
        again.until(task.id, "SUCCESS")


@pytest.mark.usefixtures("alone")
def test_a_worker_counts_the_rows_it_has_run(shop: ModuleType, worker: Worker, listener: Listener) -> None:
    worker("-c", "1")
    results = shop.mixed.bulk([(0.0,)] * 20)
    for result in results:
        result.get(timeout=20)
    totals = lambda: next(iter((listener.app.control.inspect().stats() or {"": {"total": {}}}).values()))["total"]  # noqa: E731
    until(lambda: totals() == {"mixed": 20}, "the count of rows")


def test_above_the_rate_only_successes_are_left_out(
    shop: ModuleType, worker: Worker, rows: Rows, listener: Listener
) -> None:
    worker("-c", "1", "-E", CELERIAC_EVENTS_PER_SECOND="0")
    shop.add.delay(1)
    failed = shop.permanent.delay().id
    told = listener.until(failed, "FAILURE")
    assert (told.name, told.args, told.exception) == ("permanent", "[]", "Permanent('no use')")
    until(lambda: rows.one("SELECT count(*) FROM history") == 2, "both to end")
    assert set(listener.states()) == {failed}
