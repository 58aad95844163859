"""Whatever a worker in another language reports of itself, every alert is judged and every figure is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from celeriac import Celeriac, insights
from celeriac.alerts.judgement import judge
from celeriac.api.workers import Heartbeat
from celeriac.insights.fleet import unfit
from celeriac.run import reported
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.finished import registered
from tests.postgres.stages import enqueued
from tests.postgres.test_exporter import at, figures
from tests.processes import Rows

#: What the engine reads of its own workers' reports.
NAMES = (
    "is_backing_off", "backoff_reason", "is_short_of_memory", "memory_mb", "memory_percent", "cpu_percent",
    "clock_ahead", "drain_overdue", "node", "processes", "shares_process",
)  # fmt: skip

VALUES = ("null", "true", "false", '"maybe"', '""', "17", "-0.5", "1e400", "-1e400", "1e-400", "9" * 4300, "[1]", "{}")

VERSIONS = ("20260101120000", "1..2", ".5", "1.", "9" * 200, "2.0 (deployment 999999999)", "v1", "٣.١")


def heard(database: Database, name: str, *, status: str = "active", version: str | None = None, resources: str) -> None:
    """A heartbeat as the API writes it, its resources as they came: Python has no such numbers."""
    state = Heartbeat(worker_id=name, queues=["work"], max_concurrent_tasks=5, version=version).state()
    with database.transaction() as connection:
        reported.report(connection, state, by="theirs")
        connection.exec_driver_sql(
            "UPDATE celeriac.workers SET status = %s, resources = %s WHERE worker_id = %s", (status, resources, name)
        )


def everything_is_read(app: Celeriac, database: Database) -> None:
    with database.reading() as connection:
        assert judge(connection, app).unread == []
        insights.workers(connection)
        insights.heartbeats(connection)
    found = figures(app)
    assert at(found, "scrape_ok") == 1
    assert {value for (name, _), value in found.items() if name == "group_unread"} == {0}


@pytest.fixture(autouse=True)
def waiting(database: Database, rows: Rows) -> None:
    """What makes each part of a statement be read: a task that could have started two minutes ago."""
    registered(rows, "work", window=10)
    enqueued(database, new_task())
    rows("UPDATE worker_tasks SET scheduled_for = now() - interval '2 minutes'")


@pytest.mark.parametrize("value", VALUES)
def test_resources_may_be_anything(app: Celeriac, database: Database, value: str) -> None:
    own: dict[str, Any] = {"is_short_of_memory": True, "is_backing_off": False}
    for status in ("active", "draining"):
        for name in NAMES:
            others = json.dumps({key: one for key, one in own.items() if key != name})[:-1]
            heard(database, f"{name} {status}", status=status, resources=f'{others}, "{name}": {value}}}')
    everything_is_read(app, database)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_may_be_anything(app: Celeriac, database: Database, version: str) -> None:
    heard(database, "first", version="1.0", resources="{}")
    heard(database, "second", version=version, resources="{}")
    everything_is_read(app, database)


def test_versions_of_another_code_are_compared_with_one_another(database: Database, rows: Rows) -> None:
    for name, version in (("old", "20250101120000"), ("new", "20260101120000"), ("ours", "0.1.0")):
        heard(database, name, version=version, resources="{}")
    rows("UPDATE workers SET reported_by = NULL WHERE worker_id = 'ours'")
    with database.statement() as connection:
        assert [(row.worker_id, row.newer) for row in unfit.older(connection)] == [("old", "20260101120000")]
