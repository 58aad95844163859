from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from celery import _state
from sqlalchemy import Connection, Engine, create_engine

from celeriac import Celeriac
from celeriac.dispatch.passes import Dispatcher
from celeriac.dispatch.publish import Ticket
from celeriac.enqueue.insert import enqueue
from celeriac.enqueue.rows import NewTask, Receipt
from celeriac.store import states
from celeriac.store.connections import Database
from tests.conftest import Servers
from tests.postgres.passes import Passes, Waiting
from tests.postgres.workflows import declare
from tests.processes import Rows

_number = itertools.count(1)


def new_task(role: str = "work", **options: Any) -> NewTask:
    """`args`, `kwargs`: JSON values."""
    given = {"task_id": f"task-{next(_number)}", "role": role, "args": [], "kwargs": {}} | options
    return NewTask(**given | {name: json.dumps(given[name]) for name in ("args", "kwargs")})


class Recorder:
    """Stands where a pass expects a publisher: open, and remembers what it was to publish."""

    def __init__(self) -> None:
        self.is_open = True
        self.takes = True
        self.published: list[Ticket] = []

    def publish(self, tickets: Sequence[Ticket]) -> bool:
        self.published += tickets if self.takes else []
        return self.takes


@pytest.fixture
def current(app: Celeriac) -> Iterator[None]:
    """As in a worker: signatures that come back from rows are its app's."""
    before = _state.get_current_app()
    app.set_current()
    yield
    before.set_current()


@pytest.fixture
def tasks(app: Celeriac) -> dict[str, Any]:
    """What workflows are made of, and what it did."""
    return declare(app)


@pytest.fixture(autouse=True)
def invariants_hold(request: pytest.FixtureRequest) -> Iterator[None]:
    """At the end of each test that has a database, unless it is marked `breaks_invariants`."""
    if "database_url" not in request.fixturenames or request.node.get_closest_marker("breaks_invariants"):
        yield
        return
    clean = request.getfixturevalue("clean")
    yield
    assert clean.broken() == []


@pytest.fixture
def empty_url(servers: Servers) -> Iterator[str]:
    """A database without any table."""
    with servers.cloned() as url:
        yield url


@pytest.fixture
def empty(empty_url: str) -> Iterator[Engine]:
    engine = create_engine(empty_url)
    yield engine
    engine.dispose()


@pytest.fixture
def clone(servers: Servers, template: str) -> Iterator[Callable[[], str]]:
    """Makes migrated databases, for tests that compare some."""
    with ExitStack() as made:
        yield lambda: made.enter_context(servers.cloned(template))


@pytest.fixture
def publisher() -> Recorder:
    return Recorder()


@pytest.fixture
def dispatcher(database: Database, publisher: Recorder) -> Dispatcher:
    return Dispatcher(database, publisher, "test")  # type: ignore[arg-type]


@pytest.fixture
def put(database: Database) -> Callable[..., Receipt]:
    """Enqueues one task; `put("role", lock_key="k")`."""

    def put_one(role: str = "work", **options: Any) -> Receipt:
        with database.transaction() as connection:
            (receipt,) = enqueue(connection, [new_task(role, **options)])
        return receipt

    return put_one


@pytest.fixture
def ask(database: Database) -> Callable[..., Any]:
    """`ask(insights.counts)`: on a connection of its own."""

    def answer(question: Callable[..., Any], *args: Any, **options: Any) -> Any:
        with database.statement() as connection:
            return question(connection, *args, **options)

    return answer


@pytest.fixture
def mixed(database: Database, rows: Rows) -> dict[str, list[int]]:
    """Ids by status, of four roles and two accounts, 60 in all; those of a status are not together."""
    rows("""INSERT INTO worker_tasks (task_id, role, account, status, token, claimed_at, started_at,
            last_heartbeat_at, worker_id, worker_pid, completed_at)
        SELECT 't' || i, 'role-' || i % 4, 'account-' || i % 2, s, CASE WHEN s <> 'pending' THEN gen_random_uuid() END,
            now(), now(), now(), CASE WHEN s NOT IN ('pending', 'claimed') THEN 'w' END, 1,
            CASE WHEN s IN ('completed', 'failed', 'cancelled') THEN now() - (i * 7 % 10) * interval '1 minute' END
        FROM generate_series(1, 60) i,
            LATERAL (SELECT (CAST(:all AS text[]))[1 + i * 5 % 6] AS s) AS x""", all=list(states.ALL))  # fmt: skip
    return dict(rows("SELECT status, array_agg(id ORDER BY id DESC) FROM worker_tasks GROUP BY status"))


@pytest.fixture
def touchy(app: Celeriac) -> Celeriac:
    """Its alerts fire from three tasks that wait on, and where more than half failed."""
    app.settings = replace(app.settings, alert_queue_depth=2, alert_failed_rate=0.5)
    return app


#: Written directly: the view moves one task at a time.
WAITING = """
WITH new AS (
    INSERT INTO celeriac.tasks (task_id, role, account)
    SELECT gen_random_uuid(), 'work', :account FROM generate_series(1, :n) RETURNING *)
INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id)
SELECT ring.seg, role, account, priority, scheduled_for, id FROM new, celeriac.ring
"""


@pytest.fixture
def waiting(rows: Rows) -> Waiting:
    """`waiting(a=100, b=3)`: so many ready tasks for each of these accounts."""

    def put(**tasks: int) -> None:
        for account, n in tasks.items():
            rows(WAITING, account=account, n=n)

    return put


@pytest.fixture
def passes(dispatcher: Dispatcher, rows: Rows) -> Passes:
    return Passes(dispatcher, rows)


@pytest.fixture
def old_transaction(database_url: str) -> Iterator[Connection]:
    """Open since before anything died: nothing that dies may be vacuumed."""
    engine = create_engine(database_url, isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM celeriac.roles")
        yield connection
    engine.dispose()
