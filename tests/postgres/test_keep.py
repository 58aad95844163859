"""Finished tasks go in the Queue Master's three ways: at once however they ended, after a period, or never.

`removeFinishedJobs` true is `keep=days(0)`, false is `FOREVER`, a number is a period (`test_prune.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from celery import chord

from celeriac import Celeriac
from celeriac.repair import prune, rescue
from celeriac.roles.rules import FOREVER
from celeriac.store.connections import Database
from tests.postgres.test_metrics import of
from tests.postgres.workflows import declare, run_all, run_once
from tests.processes import Rows

LEFT = "SELECT status FROM worker_tasks ORDER BY id"

#: As a worker leaves it that died a day ago.
SILENT = """
UPDATE worker_tasks SET status = 'running', token = gen_random_uuid(), worker_id = 'gone', worker_pid = 1,
    claimed_at = now(), started_at = now(), last_heartbeat_at = now() - interval '1 day' WHERE task_id = :id
"""

Ends = Callable[[Celeriac, dict[str, Any], Rows], object]


def completed(app: Celeriac, tasks: dict[str, Any], rows: Rows) -> object:
    tasks["add"].delay(1, 2)
    return run_all(app)


def failed(app: Celeriac, tasks: dict[str, Any], rows: Rows) -> object:
    tasks["fail"].delay()
    return run_all(app)


def cancelled(app: Celeriac, tasks: dict[str, Any], rows: Rows) -> object:
    return app.cancel(tasks["add"].delay(1, 2).id)


def expired(app: Celeriac, tasks: dict[str, Any], rows: Rows) -> object:
    tasks["add"].apply_async((1, 2), expires=1000)
    rows("UPDATE celeriac.tasks SET expires_at = now() - interval '1 second'")
    return run_all(app)


ENDS: dict[str, Ends] = {"completed": completed, "failed": failed, "cancelled": cancelled, "expired": expired}
BECOMES = {"expired": "cancelled"}


@pytest.mark.parametrize("way", ENDS)
@pytest.mark.parametrize(("keep", "stays"), [(timedelta(0), ()), (None, ("failed", "cancelled")), (FOREVER, None)])
def test_a_finished_task_goes_at_once_or_stays_as_its_role_says(
    app: Celeriac, rows: Rows, way: str, keep: Any, stays: tuple[str, ...] | None
) -> None:
    ENDS[way](app, declare(app, keep=keep, max_retries=0), rows)
    becomes = BECOMES.get(way, way)
    assert rows(LEFT) == ([(becomes,)] if stays is None or becomes in stays else [])


@pytest.mark.parametrize(("keep", "left"), [(timedelta(0), []), (None, [("failed",)])])
def test_what_was_lost_too_often_goes_as_well(app: Celeriac, rows: Rows, keep: Any, left: list[tuple[str]]) -> None:
    """The Queue Master's terminated: nobody may try it again."""
    tasks = declare(app, keep=keep, max_losses=1)
    task = tasks["add"].delay(1, 2).id
    rows(SILENT, id=task)
    assert rescue.rescue(app) == 1
    assert rows(LEFT) == left
    assert rows("SELECT kind, to_status FROM task_events") == [("rescue", "failed")]


def test_what_a_body_is_to_read_stays_until_it_has(app: Celeriac, rows: Rows) -> None:
    tasks = declare(app, keep=timedelta(0))
    chord([tasks["add"].s(1, 2), tasks["add"].s(3, 4)])(tasks["total"].s())
    run_once(app)
    assert rows("SELECT status FROM worker_tasks WHERE role = 'add'") == [("completed",)] * 2
    run_all(app)
    assert ("total", 3, 7) in tasks["ran"]
    prune.prune_finished(app)
    assert rows(LEFT) == []


def test_what_leaves_no_row_is_counted(app: Celeriac, database: Database, rows: Rows) -> None:
    """Of ten tasks two fail in both of their rounds, and one in its first."""
    ran: list[int] = []

    @app.task(role="work", shared=False, prompt=False, chunk=99, keep=timedelta(0), max_rounds=2, max_retries=0)
    def work(n: int) -> None:
        ran.append(n)
        if n < 2:
            raise ValueError("on purpose")
        if n == 2 and ran.count(2) == 1:
            raise ValueError("the first time")

    app.register_roles()
    work.bulk([(n,) for n in range(10)])
    run_all(app, lambda: rows("UPDATE worker_tasks SET scheduled_for = now() WHERE waits_for = 'time'"))
    app.tally.write()
    row = of(database)
    assert rows(LEFT) == []
    assert (row["success_rate"], row["failed_rate"]) == (pytest.approx(0.8), pytest.approx(0.2))
    assert (row["retry_rate"], row["retry_success_rate"]) == (pytest.approx(0.3), pytest.approx(1 / 3))
    assert 0 < row["average_run"] < 10
    told = rows("SELECT completed_last_hour, failed_last_hour FROM celeriac.v_worker_capacity WHERE role = 'work'")
    assert told == [(8, 2)]
