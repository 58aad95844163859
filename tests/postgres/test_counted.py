"""What passes, publishing, settles and rescues count in the process that does them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection

from celeriac import Celeriac
from celeriac.counters import COUNTERS
from celeriac.repair import sweep
from celeriac.run.run import Run
from celeriac.settle import release
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.finished import registered
from tests.postgres.stages import claimed, enqueued, outcome, running
from tests.processes import Rows


@pytest.fixture(autouse=True)
def counting() -> Iterator[None]:
    COUNTERS._begin()
    COUNTERS.turn(on=True)
    yield
    COUNTERS.turn(on=False)
    COUNTERS._begin()


def test_a_pass_counts_what_it_came_to_and_what_it_claimed(app: Celeriac) -> None:
    @app.task(role="work", shared=False, prompt=False, chunk=2)
    def work() -> None: ...

    app.register_roles()
    work.bulk([()] * 5)
    role = app.roles.of(work)
    assert app.dispatcher.dispatch(role) == 5
    assert app.dispatcher.dispatch(role) == 0
    assert [COUNTERS.total("pass_results_total", "work", one) for one in ("claimed", "nothing", "busy")] == [1, 1, 0]
    assert COUNTERS.total("rows_claimed_total", "work") == 5
    assert COUNTERS.total("tickets_published_total", "work", "taken") == 3
    counts, seconds = COUNTERS.times("pass_seconds", "work")
    assert (sum(counts), seconds > 0) == (2, True)


def test_a_ticket_that_redis_does_not_take_is_counted_as_that_and_not_as_rescued(app: Celeriac) -> None:
    @app.task(role="work", shared=False, prompt=False)
    def work() -> None: ...

    app.register_roles()
    work.delay()
    tickets = app.dispatcher.claim(app.roles.of(work))
    app.conf.broker_url = nowhere = "redis://127.0.0.1:1/0"
    app.settings = replace(app.settings, redis_url=nowhere)
    app.publisher.close()
    assert app.dispatcher.publish(tickets) == 0
    assert app.publisher.kick("work", "work") is False
    assert COUNTERS.total("tickets_published_total", "work", "refused") == 1
    assert COUNTERS.total("kicks_sent_total", "refused") == 1
    assert not COUNTERS.known("rescued_total")


def test_a_kick_is_sent_or_merged_with_the_one_under_way(app: Celeriac) -> None:
    assert app.publisher.kick("work", "work")
    assert app.publisher.kick("work", "work")
    assert [COUNTERS.total("kicks_sent_total", result) for result in ("sent", "merged")] == [1, 1]


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """What is beside the lines of that event."""
    data = [getattr(record, "data", {}) for record in caplog.records]
    return [one for one in data if one.get("event") == event]


def test_what_is_taken_from_a_ticket_is_counted_and_told_by_why(
    app: Celeriac, database: Database, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    registered(rows, "work")
    running(database, new_task(), new_task())
    rows("UPDATE worker_tasks SET last_heartbeat_at = now() - interval '1 day'")
    sweep(app, "rescue")
    enqueued(database, new_task())
    claimed(database)
    rows("UPDATE tickets SET claimed_at = now() - interval '1 day'")
    sweep(app, "lost_tickets")
    assert COUNTERS.total("rescued_total", "work", "rescue") == 2
    assert COUNTERS.total("tickets_republished_total", "work") == 1
    (rescued,), (lost,) = told(caplog, "task.rescued"), told(caplog, "ticket.lost")
    assert {name: rescued[name] for name in ("role", "reason", "n", "tasks")} == {
        "role": "work", "reason": "rescue", "n": 2, "tasks": [1, 2],
    }  # fmt: skip
    assert (lost["reason"], lost["n"], len(lost["tasks"])) == ("ticket_lost", 1, 1)


def test_what_was_not_committed_is_neither_told_nor_counted(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (task,) = running(database, new_task())

    def release_it(connection: Connection) -> None:
        release.release(connection, [task.token], started=True, kind="rescue", why="test", by="test", loss=True)

    def fail() -> None:
        with database.transaction() as connection:
            release_it(connection)
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fail()
    with database.transaction() as connection:
        connection.exec_driver_sql("SELECT 1")
    assert told(caplog, "task.rescued") == []
    with database.transaction() as connection:
        release_it(connection)
        assert told(caplog, "task.rescued") == []
        assert not COUNTERS.known("rescued_total")
    assert COUNTERS.total("rescued_total", task.role, "rescue") == 1
    assert [one["tasks"] for one in told(caplog, "task.rescued")] == [[task.id]]


def test_a_late_finish_is_a_refusal_of_the_fence(
    app: Celeriac, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(role="work", shared=False)
    def work() -> None: ...

    late, mine = (running(database, new_task())[0] for _ in range(2))
    with database.transaction() as connection:
        release.release(connection, [late.token], started=True, kind="rescue", why="test", by="test", loss=True)
    runs = [Run(task, app.roles.of(work), database) for task in (late, mine)]
    for run in runs:
        run.outcome = outcome(run.task)
    app.settler.settle(runs)
    assert [run.became for run in runs] == [None, "completed"]
    assert COUNTERS.total("fence_refusals_total", "work", "settle") == 1
    assert sum(COUNTERS.times("sql_seconds", "settle")[0]) == 1
    (refused,) = told(caplog, "settle.refused")
    assert (refused["task"], refused["role"], refused["attempt"]) == (late.id, "work", 1)
