"""No insight answers what a role calls sensitive, whichever way it finds its rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from celeriac import Celeriac, insights
from celeriac.errors import CeleriacError
from celeriac.insights import Filter
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import enqueued, outcome, running, settled
from tests.processes import Rows

PASSWORD = "hunter-2222"

#: What is given to each parameter that an insight has to be given.
GIVEN: dict[str, Any] = {
    "account": "ann", "lock_key": "store:7", "role": "login", "unique_key": "7", "identifier": "running",
    "identifiers": ["running", "done"], "worker_id": "worker-1", "letter": 1, "number": 1, "wanted": Filter(),
    "owner": "ann", "names": ["user"], "schedule": 1, "schedules": [1], "own": 1.0, "others": 1.0,
    "fingerprint": "0" * 16, "before": None, "place": None, "most": 10,
}  # fmt: skip

READS: dict[str, Callable[..., Any]] = {
    name: read
    for name in insights.__all__
    if inspect.isfunction(read := getattr(insights, name)) and "connection" in inspect.signature(read).parameters
}


@pytest.fixture
def vault(app: Celeriac, database: Database, rows: Rows) -> Database:
    """A task of such a role in each stage, found by its keys and its id, which all tell its password."""

    @app.task(role="login", shared=False, sensitive=("password",))
    def login(user: str, password: str) -> None: ...

    app.register_roles()
    call = {"kwargs": {"user": "ann", "password": PASSWORD}, "account": "ann"}
    link = {"task": "login", "args": [], "kwargs": call["kwargs"]}
    more = call | {"headers": {"argsrepr": PASSWORD, "kwargsrepr": PASSWORD, "chain": [link]}}
    told = f"no login with {PASSWORD}"
    settled(
        database, *[outcome(one, result=told) for one in running(database, new_task("login", task_id="done", **call))]
    )
    running(database, new_task("login", task_id="running", lock_key="store:7", unique_key="7", **more))
    enqueued(database, new_task("login", lock_key="store:7", unique_key="8", **more))
    rows("UPDATE celeriac.tasks SET progress = to_jsonb(CAST(:told AS text))", told=told)
    rows(
        """INSERT INTO celeriac.dead_letters (digest, name, task_id, reason, message, size, args, kwargs)
        VALUES (sha256('x'), 'login', 'letter', :told, 'x', 1, '[]', CAST(:kwargs AS jsonb))""",
        told=told, kwargs=f'{{"user": "ann", "password": "{PASSWORD}"}}',
    )  # fmt: skip
    return database


@pytest.mark.parametrize("name", READS)
def test_no_insight_tells_a_secret(vault: Database, name: str) -> None:
    needed = [
        one.name for one in inspect.signature(READS[name]).parameters.values() if one.default is inspect.Parameter.empty
    ]
    given = {one: GIVEN[one] for one in needed if one != "connection"}
    with vault.statement() as connection:
        try:
            answer = READS[name](connection, **given)
        except CeleriacError as unknown:
            answer = unknown
    assert PASSWORD not in repr(answer)


@pytest.mark.parametrize("name", ["active_under", "unfinished", "get", "find", "list_tasks", "dead_letter"])
def test_there_is_something_to_tell(vault: Database, name: str) -> None:
    needed = [one for one in inspect.signature(READS[name]).parameters if one in GIVEN]
    with vault.statement() as connection:
        assert "login" in repr(READS[name](connection, **{one: GIVEN[one] for one in needed if one != "before"}))
