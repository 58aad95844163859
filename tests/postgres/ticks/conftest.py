"""A beat's timetable, on which a schedule of an operator's is put as if it had been there for hours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from celeriac import Celeriac
from celeriac.schedules import written
from celeriac.schedules.decide import Entry
from celeriac.schedules.timetable import Timetable

TASKS = "SELECT task_id FROM worker_tasks ORDER BY id"


@pytest.fixture
def app(app: Celeriac) -> Celeriac:
    @app.task(role="work", prompt=False, shared=False)
    def work(n: int = 0) -> int:
        return n

    return app


@pytest.fixture
def timetable(app: Celeriac) -> Timetable:
    return Timetable(app)


Put = Callable[..., None]


@pytest.fixture
def put(app: Celeriac) -> Put:
    """A schedule of an operator's, with instants on the whole hour that begin so many hours ago."""

    def put_one(name: str = "job", *, ago: float = 0.0, **options: Any) -> None:
        entry = Entry(name=name, **{"kind": "task", "target": "work", "cron_expression": "@every 1h"} | options)
        with app.database.transaction() as connection:
            written.create(connection, entry, "a test")
        plan(app, name, ago)

    return put_one


def plan(app: Celeriac, name: str, ago: float) -> None:
    """As if it had been planned for an instant so many hours and a second ago."""
    with app.database.statement() as connection:
        connection.exec_driver_sql(
            "UPDATE celeriac.scheduled_jobs SET planned_as = timezone || '|' || cron_expression,"
            " next_run_at = clock_timestamp() - %s * interval '1 hour' - interval '1 second' WHERE name = %s",
            (ago, name),
        )


def tick_all(timetable: Timetable) -> int:
    ran = 0
    while (ticked := timetable.tick()) is not None:
        ran += len(ticked.plan.run)
    return ran
