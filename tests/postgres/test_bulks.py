"""A bulk of many statements takes unique keys in one order, whatever the order of its calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy.orm import Session

import celeriac.app as celeriac_app
from celeriac import Celeriac
from celeriac.enqueue import bulk
from celeriac.enqueue.insert import enqueue
from tests.postgres.conftest import new_task
from tests.processes import Rows, until

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

#: By code points, as in SQL within a statement: not as a language sorts them.
IN_ORDER = ["B", "a", "z", "é"]


@pytest.fixture(autouse=True)
def two_a_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (celeriac_app, bulk):
        monkeypatch.setattr(module, "BULK", 2)


@pytest.mark.parametrize("way", ["insert", "session", "calls"])
def test_two_bulks_never_wait_for_each_other(app: Celeriac, rows: Rows, way: str) -> None:
    @app.task(role="work", shared=False, prompt=False, unique_by="key")
    def work(key: str) -> None: ...

    tasks = [new_task(role="work", unique_key=key) for key in reversed(IN_ORDER)]

    def ours() -> None:
        if way == "calls":
            work.bulk([(key,) for key in reversed(IN_ORDER)])
            return
        if way == "insert":
            app.enqueuer.insert(tasks, None)
            return
        with Session(app.database.engine) as own, own.begin():
            app.enqueuer.insert(tasks, own)

    with ThreadPoolExecutor(1) as beside, app.database.transaction(patience=5) as other:
        enqueue(other, [new_task(role="work", unique_key=IN_ORDER[0])])
        waits = beside.submit(ours)
        until(lambda: rows.one(WAITING) == 1, "ours to wait for the other")
        enqueue(other, [new_task(role="work", unique_key=key) for key in IN_ORDER[1:]])
        other.exec_driver_sql("COMMIT")
        waits.result()
    assert rows('SELECT unique_key FROM worker_tasks ORDER BY unique_key COLLATE "C"') == [(key,) for key in IN_ORDER]


def test_each_call_has_its_own_receipt(app: Celeriac) -> None:
    tasks = [new_task(unique_key=key) for key in ("z", "a", None, "a", None, "m", "z")]
    receipts = app.enqueuer.insert(tasks, None)
    assert [receipt and receipt.task_id for receipt in receipts] == [tasks[n].task_id for n in (0, 1, 2, 1, 4, 5, 0)]
    assert [receipt and receipt.is_new for receipt in receipts] == [True, True, True, False, True, True, False]
