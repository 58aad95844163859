"""How often a task is retried is its row's business: a call may say so, whatever its role says."""

from __future__ import annotations

from typing import Any

import pytest

from celeriac import Celeriac
from celeriac.run.execute import execute
from celeriac.run.run import Run
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import running
from tests.processes import Rows


@pytest.mark.parametrize("retry_kwargs", [{}, {"max_retries": 3}])
@pytest.mark.parametrize(
    ("allowed", "used", "then"), [(25, 19, "pending"), (25, 25, "failed"), (0, 0, "failed"), (3, 2, "pending")]
)
def test_a_call_may_allow_more_retries_than_the_role_or_fewer(
    app: Celeriac, database: Database, rows: Rows, retry_kwargs: dict[str, Any], allowed: int, used: int, then: str
) -> None:
    @app.task(
        role="work", autoretry_for=(ValueError,), max_retries=3, retry_kwargs=retry_kwargs, retry_backoff=60,
        shared=False,
    )  # fmt: skip
    def work() -> None:
        raise ValueError("again")

    (task,) = running(database, new_task(max_retries=allowed))
    run = Run(task._replace(retry_count=used), app.roles.of(app.tasks["work"]), database)
    execute(app, run)
    assert run.outcome is not None
    assert run.outcome.status == then
