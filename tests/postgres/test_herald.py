"""What ends tasks in SQL is told to who listens to Celery's events, by one of the workers."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import signals

from celeriac import Celeriac
from celeriac.enqueue.rows import Receipt
from celeriac.run import shared, start
from celeriac.run.arrive import run_ticket
from celeriac.store.connections import Database
from celeriac.worker import herald, stops
from celeriac.worker.herald import Herald
from tests.postgres.stages import claimed
from tests.processes import Rows

Put = Callable[..., Receipt]


@pytest.fixture
def teller(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> Iterator[Herald]:
    """A herald whose first look is done, while somebody listens."""
    monkeypatch.setattr(herald, "LAG", 0.0)
    shared.tell()
    teller = Herald(app, threading.Event())
    teller.look()
    yield teller
    shared.tell(on=False)


@pytest.fixture
def heard(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []
    monkeypatch.setattr(app.journal, "write", heard.append)
    return heard


def test_what_expires_in_sql_is_told_as_expired(
    put: Put, teller: Herald, heard: list[dict[str, Any]], rows: Rows
) -> None:
    """A request that came too late for the one that holds its key."""
    put(unique_key="u", task_id="late")
    rows("UPDATE worker_tasks SET expires_at = now()")
    put(unique_key="u")
    teller.look()
    assert [(event["type"], event["uuid"], event["expired"]) for event in heard] == [("task-revoked", "late", True)]


def test_what_redis_did_not_take_goes_with_the_next_look_of_any_worker(
    app: Celeriac, teller: Herald, redis_url: str
) -> None:
    """What its parent tells of a stopped process, and no run of its tells again."""
    app.journal.write({"type": "task-failed"})
    app.publisher._closed_until = math.inf
    app.journal.flush()
    app.publisher._closed_until = 0.0
    app.publisher.ask(lambda redis: redis.set(herald.TURN, "another"))
    teller.look()
    assert not app.journal._events
    assert app.publisher.ask(lambda redis: redis.get(herald.TURN)) == b"another"


def test_a_backlog_is_told_batch_by_batch_however_long_it_is(
    teller: Herald, heard: list[dict[str, Any]], rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not deeper and deeper into the stack."""
    monkeypatch.setattr(herald, "BATCH", 1)
    rows("INSERT INTO worker_tasks (task_id, role) SELECT n::text, 'work' FROM generate_series(1, 1200) AS n")
    rows("SELECT count(*) FROM celeriac.cancel(ARRAY(SELECT id FROM tasks), 'cancel', 'no', 'dba')")
    teller.look()
    assert len(heard) == 1200


def test_whoever_cancels_a_task_that_waits_its_signal_is_sent_by_a_worker(
    app: Celeriac, put: Put, teller: Herald, rows: Rows
) -> None:
    """Also while nobody listens to events; receivers are what makes it look."""
    shared.tell(on=False)
    sent: list[tuple[Any, ...]] = []

    def revoked(sender: Any, request: Any, terminated: bool, expired: bool, **_: Any) -> None:
        sent.append((sender.name, request.id, request.args, request.kwargs, terminated, expired))

    @app.task(role="work", prompt=False, shared=False)
    def shown(n: int = 0) -> None: ...

    app.register_roles()
    shown.delay(6).revoke()
    signals.task_revoked.connect(revoked)
    try:
        teller.look()  # what was cancelled before somebody listened is not told
        sent.clear()
        by_result, by_sql = shown.delay(7), shown.delay(8)
        by_result.revoke()
        rows("SELECT count(*) FROM celeriac.cancel(ARRAY[:id], 'cancel', 'no', 'dba')", id=by_sql.row_id)
        put(unique_key="u", task_id="late")
        rows("UPDATE worker_tasks SET expires_at = now() WHERE task_id = 'late'")
        put(unique_key="u")
        teller.look()
    finally:
        signals.task_revoked.disconnect(revoked)
    assert sent == [
        ("work", by_result.id, [], {"n": 7}, False, False), ("work", by_sql.id, [], {"n": 8}, False, False),
        ("work", "late", [], {}, False, True),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["silent", "mute"])
@pytest.mark.parametrize("shadow", [None, "shown"])
def test_nothing_is_told_of_tasks_that_send_no_events(
    app: Celeriac, teller: Herald, heard: list[dict[str, Any]], database: Database, name: str, shadow: str | None
) -> None:
    """By their run, by the herald, by a worker that stops them or hands them back; under whichever name."""

    @app.task(role="silent", aliases=("mute",), send_events=False, prompt=False, shared=False)
    def silent() -> None: ...

    @app.task(role="loud", prompt=False, shared=False)
    def loud() -> None: ...

    app.register_roles()
    shown = {"shadow": shadow} if shadow else {}
    for role in ("loud", name):
        app.send_task(role, **shown)
        run_ticket(app, role, *claimed(database, role))
        app.cancel(app.send_task(role, **shown).id)
        app.send_task(role, **shown)
        with database.statement() as connection:
            start.start(connection, role, *claimed(database, role), worker_id=shared.worker_id(), pid=os.getpid())
        stops.hand_back(app.database, app, [os.getpid()])
    teller.look()
    assert {event["name"] for event in heard} == {shadow or "loud"}
    kinds = ["task-received", "task-rejected", "task-revoked", "task-started", "task-succeeded"]
    assert sorted(event["type"] for event in heard) == kinds
