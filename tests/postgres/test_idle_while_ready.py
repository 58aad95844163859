"""An alert tells of work that is left lying beside an idle worker, and of none that waits with a reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac import Celeriac
from celeriac.insights.fleet.watched import GOOD_REASONS
from celeriac.repair import sweep
from celeriac.store.connections import Database
from tests.postgres.alerts import WAITED
from tests.postgres.conftest import new_task
from tests.postgres.finished import live_worker, registered
from tests.postgres.stages import enqueued, running
from tests.postgres.test_exporter import at, figures
from tests.processes import Rows

FIRES = "SELECT name, subject, value FROM celeriac.alerts ORDER BY name"
NOTHING = """INSERT INTO passes (role, by, free, why_nothing, last_at)
    VALUES ('work', 'x', 9, :why, now() - :ago * interval '1 s')"""


@pytest.fixture
def looked(app: Celeriac, rows: Rows) -> Callable[[], list[tuple[object, ...]]]:
    def look() -> list[tuple[object, ...]]:
        sweep(app, "alerts")
        rows(WAITED)
        sweep(app, "alerts")
        return rows(FIRES)

    return look


@pytest.fixture(autouse=True)
def left(database: Database, rows: Rows) -> None:
    """Three tasks that could have started two minutes ago, and a worker with nothing to do."""
    registered(rows, "work", window=10)
    live_worker(rows)
    enqueued(database, *(new_task() for _ in range(3)))
    rows("UPDATE worker_tasks SET scheduled_for = now() - interval '2 minutes'")


def test_it_fires_until_somebody_claims(app: Celeriac, rows: Rows, looked: Callable[[], object]) -> None:
    assert looked() == [("idle_while_ready", "work", 3)]
    assert at(figures(app), "tasks_left_ready", role="work") == 3
    rows("INSERT INTO passes (role, by, free, given) VALUES ('work', 'x', 10, '{\"\": 1}')")
    assert looked() == []
    assert at(figures(app), "tasks_left_ready", role="work") == 0


@pytest.mark.parametrize("why", ["nothing is ready", "all that is ready is locked by others"])
def test_a_pass_that_leaves_them_for_no_good_reason_ends_no_alert(
    rows: Rows, looked: Callable[[], object], why: str
) -> None:
    rows(NOTHING, why=why, ago=0)
    assert looked() == [("idle_while_ready", "work", 3)]


@pytest.mark.parametrize("why", GOOD_REASONS)
def test_a_good_reason_holds_for_a_minute(rows: Rows, looked: Callable[[], object], why: str) -> None:
    rows(NOTHING, why=why, ago=50)
    assert looked() == []
    rows("UPDATE passes SET last_at = now() - interval '70 s'")
    assert looked() == [("idle_while_ready", "work", 3)]


STATEMENTS = {
    "the role is paused": "UPDATE roles SET paused = true",
    "a pass of it is switched off": """INSERT INTO scheduled_jobs (name, kind, target, cron_expression, enabled)
        VALUES ('batcher work', 'pass', 'work', '@every 5m', false)""",
    "the worker backs off": """UPDATE workers SET resources = '{"is_backing_off": true}'""",
    "the worker drains": "UPDATE workers SET status = 'draining'",
    "the worker has another queue": """UPDATE workers SET queues = '["other"]'""",
    "they came just now": "UPDATE worker_tasks SET scheduled_for = now()",
    "its passes are far apart": """UPDATE roles SET definition = definition || '{"prompt": false, "every": 100}'""",
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_what_has_a_reason_is_left_by_nobody(
    rows: Rows, looked: Callable[[], list[tuple[str, ...]]], statement: str
) -> None:
    rows(statement)
    assert "idle_while_ready" not in {name for name, *_ in looked()}


def test_a_pass_that_is_switched_off_is_so_for_all_queues_of_its_role(rows: Rows, looked: Callable[[], object]) -> None:
    registered(rows, "work,slow", queue="slow", lane_of="work", window=10)
    rows("UPDATE workers SET queues = '[\"slow\"]'")
    rows("UPDATE ready SET role = 'work,slow'")
    assert looked() == [("idle_while_ready", "work,slow", 3)]
    rows(STATEMENTS["a pass of it is switched off"])
    assert looked() == []
    rows("UPDATE ready SET role = 'work'")


def test_nor_is_it_where_every_slot_has_something_to_do(
    database: Database, rows: Rows, looked: Callable[[], object]
) -> None:
    running(database, new_task())
    rows("UPDATE tickets SET worker_id = 'w'")
    assert looked() == []


def test_nor_where_the_window_is_full(rows: Rows, looked: Callable[[], object]) -> None:
    rows("""UPDATE roles SET definition = '{"window": 0}'""")
    assert looked() == []


def test_the_good_reasons_are_those_that_passes_give(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(role="work", shared=False, window=2, prompt=False)
    def work() -> None: ...

    role = app.roles.of(work)
    app.register_roles()
    given = set()
    rows("UPDATE roles SET paused = true")
    given.add(app.dispatcher.run_pass(role).why_nothing)
    rows("UPDATE roles SET paused = false")
    rows("INSERT INTO account_policies (account, paused) VALUES ('', true)")
    given.add(app.dispatcher.run_pass(role).why_nothing)
    rows("DELETE FROM account_policies")
    rows("INSERT INTO celeriac.unparking VALUES ('') ON CONFLICT DO NOTHING")
    app.dispatcher.run_pass(role)
    given.add(app.dispatcher.run_pass(role).why_nothing)
    assert {*GOOD_REASONS} - given == {"the rate limit is reached"}
