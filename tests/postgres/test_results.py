"""`AsyncResult` reads the row: whatever Celery's own results tell, and what a task says of itself while it runs."""

from __future__ import annotations

from typing import Any

import pytest
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult

from celeriac import Celeriac
from celeriac.run.arrive import run_ticket
from tests.postgres.workflows import declare, run_all
from tests.processes import Rows


def result_of(app: Celeriac, task_id: str) -> AsyncResult:
    """As another process has it: nothing is remembered."""
    return app.AsyncResult(task_id)


def test_a_result_tells_what_celerys_tell(app: Celeriac) -> None:
    tasks = declare(app)
    done = tasks["add"].delay(1, 2)
    run_all(app)
    found = result_of(app, done.id)
    assert (found.state, found.result, found.name, found.retries) == ("SUCCESS", 3, "add", 0)
    assert (list(found.args), found.kwargs) == ([], {"x": 1, "y": 2})
    assert found.worker
    assert found.date_done is not None


def test_a_failure_keeps_its_traceback(app: Celeriac) -> None:
    tasks = declare(app)
    failed = tasks["fail"].delay()
    run_all(app)
    found = result_of(app, failed.id)
    assert found.state == "FAILURE"
    assert isinstance(found.result, ValueError)
    assert 'raise ValueError("on purpose")' in found.traceback


def test_a_cancelled_task_is_a_revoked_one(app: Celeriac) -> None:
    tasks = declare(app)
    waiting = tasks["add"].delay(1, 2)
    app.cancel(waiting.id, why="not wanted")
    with pytest.raises(TaskRevokedError, match="not wanted"):
        result_of(app, waiting.id).get(timeout=1, disable_sync_subtasks=False)


def test_a_state_of_its_own_is_seen_while_it_runs(app: Celeriac) -> None:
    seen: list[Any] = []

    @app.task(role="load", bind=True, shared=False, prompt=False)
    def load(self: Any) -> None:
        self.update_state(state="LOADING", meta={"done": 3})
        found = result_of(app, self.request.id)
        seen.extend([found.state, found.info])

    app.register_roles()
    done = load.delay()
    run_all(app)
    assert seen == ["LOADING", {"done": 3}]
    assert result_of(app, done.id).state == "SUCCESS"


@pytest.mark.parametrize("fails", [False, True])
def test_an_ignored_result_is_not_stored_and_ends_its_task(app: Celeriac, rows: Rows, fails: bool) -> None:
    @app.task(role="quiet", ignore_result=True, shared=False, prompt=False)
    def quiet() -> int:
        if fails:
            raise ValueError
        return 7

    app.register_roles()
    quiet.delay()
    run_all(app)
    assert rows("SELECT status, result FROM worker_tasks WHERE status <> 'failed'") == (
        [] if fails else [("completed", None)]
    )
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE status = 'failed'") == int(fails)


def test_what_is_forgotten_is_pending_to_celery(app: Celeriac) -> None:
    tasks = declare(app)
    done = tasks["add"].delay(1, 2)
    assert run_ticket(app, "add", [], "") == {"ran": 1}
    done.forget()
    assert result_of(app, done.id).state == "PENDING"


def test_many_results_are_awaited_in_one_statement_a_look(app: Celeriac) -> None:
    tasks = declare(app)
    done = tasks["add"].bulk([(n, n) for n in range(20)])
    run_all(app)
    looks: list[Any] = []
    ids = [result.id for result in done]
    found = dict(app.backend.get_many(ids, timeout=1, on_interval=lambda: looks.append(1)))
    assert {task_id: meta["result"] for task_id, meta in found.items()} == {r.id: 2 * n for n, r in enumerate(done)}
    assert looks == []
