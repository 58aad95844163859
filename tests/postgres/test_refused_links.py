"""Links of long chains that cannot be enqueued: each fails, and who waits for what follows is told."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain

from celeriac import Celeriac
from tests.postgres.test_long_chains import LONG, counting, get, tasks
from tests.postgres.workflows import declare, run_all
from tests.processes import Rows

__all__ = ["tasks"]


def test_of_a_chain_whose_first_key_an_open_transaction_has_all_links_are_told(app: Celeriac, rows: Rows) -> None:
    """A handler calls it: its first task's savepoint takes back the links that its row would not carry."""
    tasks = declare(app, keep="forever")

    @app.task(role="unique", shared=False, prompt=False, unique_by="n")
    def unique(n: int) -> int:
        return n

    @app.task(role="caller", shared=False, prompt=False)
    def caller() -> None:
        chain(unique.s(20), *counting(tasks["add"], LONG)[1:])()

    app.register_roles()
    caller.delay()
    with app.database.transaction() as other:
        other.exec_driver_sql("""INSERT INTO celeriac.worker_tasks (role, kwargs) VALUES ('unique', '{"n": 20}')""")
        run_all(app)
    run_all(app)
    assert rows("SELECT status, count(*) FROM worker_tasks WHERE role = 'add' GROUP BY 1 ORDER BY 1") == [
        ("failed", LONG - 1)
    ]


@pytest.mark.parametrize("role", ["gone", "unique"])
def test_a_link_far_behind_that_is_refused_fails_with_what_follows(app: Celeriac, rows: Rows, role: str) -> None:
    tasks = declare(app, keep="forever")

    @app.task(role="unique", shared=False, prompt=False, unique_by="n")
    def unique(n: int) -> int:
        return n

    app.register_roles()
    unique.apply_async((20,), countdown=3600)
    refused = app.signature("gone") if role == "gone" else unique.s()
    result = chain(*counting(tasks["add"], 20), refused, *counting(tasks["add"], LONG)[1:])()
    run_all(app)
    assert result.state == "FAILURE"
    assert rows("SELECT status, count(*) FROM worker_tasks WHERE role = 'add' GROUP BY 1 ORDER BY 1") == [
        ("completed", 20), ("failed", LONG - 1),
    ]  # fmt: skip


def test_links_that_are_all_unique_go_on(app: Celeriac) -> None:
    tasks = declare(app, unique_by=lambda arguments: str(sorted(arguments.items(), key=str)))
    result = chain(counting(tasks["add"], LONG))()
    run_all(app)
    assert get(result) == LONG


def test_a_link_whose_rest_is_gone_fails_and_says_so(app: Celeriac, tasks: Any, rows: Rows) -> None:
    chain(counting(tasks["add"], LONG))()
    rows("DELETE FROM celeriac.chain_rests WHERE place = 1")
    run_all(app)
    error = rows.one("SELECT error_message FROM worker_tasks WHERE status = 'failed' ORDER BY id LIMIT 1")
    assert "are not there any more" in error
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE completed_at IS NULL") == 0
