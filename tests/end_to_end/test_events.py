"""Celery's events tell of rows: by their own ids, what SQL says of them, and nothing of tickets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from tests.end_to_end.listener import Listener, listening
from tests.processes import Rows, Running, until

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
    running = worker("-c", "2", "-E")
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
    assert failed.exception == "Permanent: no use"
    assert "in permanent" in failed.traceback
    assert "celeriac.ticket" not in running.printed()


def test_a_task_that_takes_long_is_shown_as_started(shop: ModuleType, worker: Worker, listener: Listener) -> None:
    worker("-c", "1", "-E")
    task = shop.slow.delay(30.0).id
    listener.until(task, "STARTED")
    shop.app.cancel(task)
    assert listener.until(task, "REVOKED").terminated is True


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


def test_a_worker_counts_the_rows_it_has_run(shop: ModuleType, worker: Worker, listener: Listener) -> None:
    worker("-c", "1")
    results = shop.mixed.bulk([(0.0,)] * 20)
    for result in results:
        result.get(timeout=20)
    totals = lambda: next(iter((listener.app.control.inspect().stats() or {"": {"total": {}}}).values()))["total"]  # noqa: E731
    until(lambda: totals() == {"mixed": 20}, "the count of rows")
