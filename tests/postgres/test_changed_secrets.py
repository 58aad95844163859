"""A secret that a task no longer has is shown no more than the one that it has now."""

from __future__ import annotations

from typing import Any

import pytest

from celeriac import Celeriac, insights
from celeriac.run.arrive import run_ticket
from celeriac.store.connections import Database
from celeriac.store.redact import HIDDEN
from tests.postgres.stages import claimed
from tests.processes import Rows

OLD, NEW = "hunter2222-old", "brand-new-one-9"


def shown(database: Database, rows: Rows) -> dict[str, Any]:
    with database.reading() as connection:
        return insights.get(connection, int(str(rows.one("SELECT id FROM worker_tasks"))))


@pytest.mark.parametrize("by", ["name", "place"])
@pytest.mark.parametrize("says", [True, False])
def test_of_a_retry_with_another_secret_the_progress_tells_neither(
    app: Celeriac, database: Database, rows: Rows, by: str, says: bool
) -> None:
    @app.task(role="login", bind=True, shared=False, sensitive=("password",))
    def login(self: Any, user: str, password: str) -> None:
        if says:
            self.progress({"note": f"tried {password}"})
        given = {"kwargs": {"user": user, "password": NEW}} if by == "name" else {"args": (user, NEW), "kwargs": {}}
        raise self.retry(**given, countdown=100, exc=ValueError(f"no login with {password}"))

    app.register_roles()
    login.delay("ann", OLD) if by == "place" else login.delay(user="ann", password=OLD)
    run_ticket(app, "login", *claimed(database, "login"))
    task = shown(database, rows)
    assert (task["status"], task["retry_count"]) == ("pending", 1)
    assert task["progress"] == (HIDDEN if says else None)
    assert OLD not in str(task)
    assert NEW in str(rows("SELECT args, kwargs FROM worker_tasks"))


def test_of_a_retry_with_the_same_secret_it_stays(app: Celeriac, database: Database, rows: Rows) -> None:
    @app.task(role="login", bind=True, shared=False, sensitive=("password",))
    def login(self: Any, user: str, password: str) -> None:
        self.progress({"note": f"tried {password}", "step": 7})
        raise self.retry(countdown=100)

    app.register_roles()
    login.delay("ann", OLD)
    run_ticket(app, "login", *claimed(database, "login"))
    assert shown(database, rows)["progress"] == {"note": f"tried {HIDDEN}", "step": 7}


@pytest.mark.parametrize(("sensitive", "progress"), [(("password",), HIDDEN), ((), {"note": f"tried {OLD}"})])
def test_of_an_edited_task_the_progress_tells_neither(
    app: Celeriac, database: Database, rows: Rows, sensitive: tuple[str, ...], progress: Any
) -> None:
    @app.task(role="login", bind=True, shared=False, sensitive=sensitive)
    def login(self: Any, user: str, password: str) -> None:
        self.progress({"note": f"tried {password}"})
        raise self.retry(countdown=100)

    app.register_roles()
    task = login.delay(user="ann", password=OLD)
    run_ticket(app, "login", *claimed(database, "login"))
    app.edit(task.id, {"password": NEW}, by="ann")
    assert shown(database, rows)["progress"] == progress
