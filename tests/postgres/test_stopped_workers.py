"""Workers that have stopped stay listed for a month, and cost no pass, poll, heartbeat or check anything."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import Connection, create_engine

from celeriac.insights.fleet.unfit import MOST
from celeriac.store.plans import BY_LOOKUPS
from tests.postgres.backlog import analyze, fill, forget
from tests.postgres.explained import Clone, Measured, in_order, measured
from tests.postgres.parameters.selected import Given
from tests.postgres.plans import Plan, explain
from tests.postgres.test_statements import STATEMENTS

#: As many as a cluster leaves that starts a worker for each burst of work.
STOPPED = """
INSERT INTO celeriac.workers (worker_id, hostname, pid, queues, concurrency, status, last_heartbeat_at, started_at)
SELECT 'gone-' || i, 'pod', 0, '["work"]', 4, 'stopped', now() - i * interval '25 seconds', now() - interval '31 days'
FROM generate_series(1, 100000) AS i
"""

LIVING = """
INSERT INTO celeriac.workers (worker_id, hostname, pid, queues, concurrency)
SELECT 'here-' || i, 'pod', i, '["work"]', 4 FROM generate_series(1, 20) AS i
"""

#: Somebody asks for those who have stopped, or deletes them.
TELL_OF_STOPPED = {
    "insights.system.WORKERS", "insights.system.WORKERS_BY_NAME", "insights.situation.WORKERS",
    "insights.burning.STARTED", "repair.prune.WORKERS",
}  # fmt: skip

heard = {"heard": 120.0, "most": MOST}
late = {"late": 60.0, "forgotten": 3600.0, "most": 100}
#: Of those that meet no room; the others' are with the rooms'.
PARAMETERS: dict[str, Given] = {
    "run.lease.NOTE_GAP": {"worker_id": "here-1", "pid": 1, "silence": 60.0},
    "schedules.tick.REPORT": {"beat_id": "b", "hostname": "here", "pid": 1, "late_by": 0.0, "silence": 5.0},
    "insights.figures.SERVED": {"wait": 600.0},
    "insights.shared_slots.SERVING": {},
    "insights.unfit.SHORT": heard, "insights.unfit.OLDER": heard, "insights.unfit.CLOCKS": heard,
    "insights.watched.LAST_HEARD": {"queue": "work"},
    "insights.watched.HEARTBEATS": late, "insights.watched.DRAINING_ON": late,
    "doctor.deploying.SERVED": {"queue": "work"},
}  # fmt: skip

#: What finds a worker by its name.
BY_NAME = re.compile(
    r"worker_id = (:worker_id|w\.worker_id|k\.worker_id|t\.worker_id|coalesce)|INSERT INTO celeriac.workers"
)

ASKED = {
    name.removeprefix("celeriac."): statement
    for name, statement in STATEMENTS.items()
    if re.search(r"celeriac\.(workers|slots_of|note_gap)\b", statement.text)
}


def plans(connection: Connection) -> Measured:
    own = {name: own_plan(connection, name, given) for name, given in PARAMETERS.items()}
    return own | measured(connection, ASKED)


def own_plan(connection: Connection, name: str, given: Given) -> Plan:
    connection.exec_driver_sql("SAVEPOINT own")
    if name.startswith("insights.") and not in_order(name):
        connection.exec_driver_sql(BY_LOOKUPS)
    plan = explain(connection, ASKED[name], **given)
    connection.exec_driver_sql("ROLLBACK TO own")
    return plan


@pytest.mark.parametrize("belief", ["the truth", "nothing"])
def test_no_statement_reads_the_workers_that_have_stopped(clone: Clone, belief: str) -> None:
    engine = create_engine(clone())
    with engine.connect() as connection:
        fill(connection, ["one deep account"], 100)
        connection.exec_driver_sql(LIVING)
        connection.exec_driver_sql(STOPPED)
        (analyze if belief == "the truth" else forget)(connection)
        found = plans(connection)
        assert {name.partition(",")[0] for name in found} >= {"dispatch.select.SURVEY", "dispatch.room.WORK_AND_ROOM"}
        read = {name: plan.read.get("workers", 0) for name, plan in found.items()}
        told = {name for name in read if name.partition(",")[0] in TELL_OF_STOPPED}
        assert {name: n for name, n in read.items() if n > 100 and name not in told} == {}
        assert {name: plan.pages for name, plan in found.items() if plan.pages > 2_000 and name not in told} == {}
    engine.dispose()


def test_every_statement_that_asks_for_workers_is_explained(clone: Clone) -> None:
    by_name = {name for name, statement in ASKED.items() if BY_NAME.search(statement.text)}
    engine = create_engine(clone())
    with engine.connect() as connection:
        fill(connection, ["one deep account"], 10)
        met = {name.partition(",")[0] for name in measured(connection, ASKED)}
    engine.dispose()
    assert ASKED.keys() - met - PARAMETERS.keys() - by_name - TELL_OF_STOPPED == set()
