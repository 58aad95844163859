"""What somebody has locked keeps no other task from being freed, and nothing that frees tasks goes round for ever."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from celeriac import Celeriac, repair
from celeriac.repair import rescue
from celeriac.repair import worker as dead_worker
from celeriac.store.connections import Database
from tests.postgres.backlog import tasks
from tests.processes import Rows

pytestmark = pytest.mark.timeout(30)

Frees = Callable[[Celeriac, Rows], object]
FREES: dict[str, Frees] = {
    "the sweep": lambda app, _: repair.sweep(app, "rescue"),
    "the review": lambda app, _: repair.sweep(app, "review"),
    "of one worker": lambda app, _: dead_worker.rescue_worker(app.database, "gone", silent=1, operator="me").total(),
    "in SQL": lambda _, rows: rows.one("SELECT recover_stale_tasks(10)"),
}

#: More than a batch of each.
MANY = {"in SQL": 510}
FEW = 12

#: The lock of an operator's UPDATE that is still open.
HELD = """
SELECT FROM celeriac.tasks WHERE id IN (
    SELECT unnest(ids) FROM celeriac.tickets ORDER BY heartbeat_at, token LIMIT {n}) FOR UPDATE
"""


@pytest.fixture(params=FREES)
def how(request: pytest.FixtureRequest, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> str:
    """Silent tickets of one worker, several batches of them."""
    monkeypatch.setattr(rescue, "TICKETS", 3)
    monkeypatch.setattr(dead_worker, "TICKETS", 3)
    how = str(request.param)
    many = f"'silent-' || i, 'work', '', NULL, NULL, now() FROM generate_series(1, {MANY.get(how, FEW)})"
    rows(tasks("a silent ticket each", many))
    rows("UPDATE tickets SET worker_id = 'gone'")
    return how


def test_tasks_that_somebody_has_locked_keep_no_other_from_being_freed(
    app: Celeriac, database: Database, rows: Rows, how: str
) -> None:
    n = MANY.get(how, FEW)
    with database.transaction() as other:
        other.exec_driver_sql(HELD.format(n=n - 2))
        assert FREES[how](app, rows) == 2
        assert FREES[how](app, rows) == 0
    assert FREES[how](app, rows) == n - 2


def test_a_whole_table_that_somebody_has_locked_ends_it_soon(
    app: Celeriac, database: Database, rows: Rows, how: str
) -> None:
    """What every release writes: each batch is given up after a second, and so is the rest."""
    with database.transaction() as other:
        other.exec_driver_sql("LOCK TABLE celeriac.task_events IN SHARE MODE")
        began = time.monotonic()
        assert FREES[how](app, rows) == 0
        assert time.monotonic() - began < 15
    assert FREES[how](app, rows) == MANY.get(how, FEW)
