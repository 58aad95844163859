"""Celery's own roles are shown where there is something to tell of them, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from celeriac import Celeriac, insights
from celeriac.api.scheduled_jobs import role_taking
from celeriac.store.connections import Database
from celeriac.store.role_names import is_built_in
from tests.postgres.conftest import new_task
from tests.postgres.finished import finished
from tests.postgres.stages import enqueued
from tests.processes import Rows

Of = Callable[[Callable[..., Any]], list[str]]


@pytest.fixture
def of(app: Celeriac, database: Database) -> Of:
    """The roles a reading tells of."""

    @app.task(role="work", shared=False)
    def work(task: str, it: Any) -> None: ...

    app.register_roles()

    def names(read: Callable[..., Any]) -> list[str]:
        with database.statement() as connection:
            found = [row if isinstance(row, dict) else {"role": row.role} for row in read(connection)]
        # Other tests' shared tasks are every app's.
        return [row["role"] for row in found if row["role"] == "work" or is_built_in(row["role"])]

    return names


READINGS = [insights.depth, insights.metrics, insights.capacity]


@pytest.mark.parametrize("read", READINGS)
def test_idle_ones_are_left_out(of: Of, read: Callable[..., Any]) -> None:
    assert of(read) == ["work"]


@pytest.mark.parametrize("read", READINGS)
def test_those_with_tasks_are_shown(of: Of, read: Callable[..., Any], database: Database) -> None:
    enqueued(database, new_task("celery.map"), new_task("celery.starmap", delay=600.0))
    assert of(read) == ["celery.map", "celery.starmap", "work"]


@pytest.mark.parametrize("read", [insights.metrics, insights.capacity])
def test_so_are_those_of_the_last_hour_and_one_that_is_asked_for(
    of: Of, read: Callable[..., Any], database: Database, rows: Rows
) -> None:
    finished(rows, "celery.map")
    assert of(read) == ["celery.map", "work"]
    with database.statement() as connection:
        assert [row["role"] for row in read(connection, "celery.starmap")] == ["celery.starmap"]


def test_a_schedule_without_a_role_means_none_of_theirs(app: Celeriac, of: Of) -> None:
    assert of
    assert role_taking(app, {"task": "add", "it": []}) == "work"
