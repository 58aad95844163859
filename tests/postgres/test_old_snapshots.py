"""A caller whose snapshot is older than the end of a task that he names starts no second run of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from celeriac import Celeriac
from celeriac.enqueue.outbox import Admission
from celeriac.errors import EnqueueRefused, SnapshotTooOld
from celeriac.run.arrive import run_ticket
from celeriac.store.connections import Database
from tests.postgres.stages import claimed
from tests.processes import Rows

LEVELS = ("REPEATABLE READ", "SERIALIZABLE")

RUNS = "SELECT count(*) FROM celeriac.worker_tasks WHERE task_id = 'mine'"

Send = Callable[[], Any]


@pytest.fixture
def finish(app: Celeriac, database: Database) -> Send:
    """A task with the id `mine` is enqueued, unless it is, and finishes."""

    @app.task(name="work", shared=False, prompt=False, keep="forever")
    def work() -> None: ...

    app.register_roles()

    def finish() -> None:
        work.apply_async(task_id="mine")
        run_ticket(app, "work", *claimed(database, "work"))

    return finish


@pytest.fixture(params=LEVELS)
def theirs(request: pytest.FixtureRequest, database_url: str) -> Iterator[Engine]:
    """An engine of the caller's own."""
    engine = create_engine(database_url, isolation_level=request.param)
    yield engine
    engine.dispose()


def with_session(app: Celeriac, connection: Connection) -> Any:
    return app.tasks["work"].using(session=Session(connection), task_id="mine").delay()


def with_connection(app: Celeriac, connection: Connection) -> Any:
    return app.tasks["work"].using(connection=connection, task_id="mine").delay()


def with_countdown(app: Celeriac, connection: Connection) -> Any:
    return app.tasks["work"].using(connection=connection, task_id="mine", countdown=60).delay()


def in_sql(_: Celeriac, connection: Connection) -> Any:
    return connection.execute(text("SELECT celeriac.enqueue('work', task_id => 'mine')")).one()


@pytest.mark.parametrize("was_there", [True, False], ids=["waited", "was not there"])
@pytest.mark.parametrize("send", [with_session, with_connection, with_countdown, in_sql])
def test_what_has_finished_since_is_refused(
    app: Celeriac, finish: Send, theirs: Engine, rows: Rows, send: Callable[..., Any], was_there: bool
) -> None:
    if was_there:
        app.tasks["work"].apply_async(task_id="mine")
    with theirs.connect() as connection:
        connection.execute(text("SELECT 1 FROM celeriac.tasks")).all()
        finish()
        with pytest.raises((SnapshotTooOld, DBAPIError), match=r"READ COMMITTED") as refused:
            send(app, connection)
        assert isinstance(refused.value, EnqueueRefused) or refused.value.orig.pgcode == "0A000"
        if send is not in_sql:
            connection.execute(text("SELECT 1"))
            connection.commit()
    assert rows.one(RUNS) == 1


@pytest.mark.parametrize("send", [with_session, with_connection, with_countdown])
def test_what_is_new_is_taken(
    app: Celeriac, finish: Send, theirs: Engine, rows: Rows, send: Callable[..., Any]
) -> None:
    with theirs.connect() as connection:
        connection.execute(text("SELECT 1 FROM celeriac.tasks")).all()
        send(app, connection)
        connection.commit()
    assert rows.one(RUNS) == 1


@pytest.mark.parametrize("send", [with_session, with_connection, with_countdown, in_sql])
def test_what_had_finished_before_is_found(
    app: Celeriac, finish: Send, theirs: Engine, rows: Rows, send: Callable[..., Any]
) -> None:
    finish()
    with theirs.connect() as connection:
        send(app, connection)
        connection.commit()
    assert rows.one(RUNS) == 1


def test_a_caller_of_read_committed_finds_it(app: Celeriac, finish: Send, database_url: str, rows: Rows) -> None:
    engine = create_engine(database_url)
    with engine.connect() as connection:
        connection.execute(text("SELECT 1 FROM celeriac.tasks")).all()
        finish()
        for send in (with_session, with_connection, in_sql):
            send(app, connection)
        connection.commit()
    engine.dispose()
    assert rows.one(RUNS) == 1


@pytest.mark.parametrize("level", LEVELS)
def test_a_handlers_follow_up_is_put_off_until_it_is_known(
    app: Celeriac, finish: Send, database: Database, rows: Rows, level: str
) -> None:
    """Its session has a level of the handler's own; the call has returned."""

    @app.task(name="handler", role="handler", bind=True, shared=False, prompt=False)
    def handler(self: Any) -> None:
        self.session.connection(execution_options={"isolation_level": level})
        self.session.execute(text("SELECT 1 FROM celeriac.tasks")).all()
        rows(
            "INSERT INTO worker_tasks (task_id, role, status, worker_id, completed_at) "
            "VALUES ('mine', 'work', 'completed', 'w', now())"
        )
        for task_id in ("mine", "new"):
            app.tasks["work"].apply_async(task_id=task_id)

    app.register_roles()
    handler.delay()
    run_ticket(app, "handler", *claimed(database, "handler"))
    assert rows.one("SELECT count(*) FROM celeriac.intake") == 2
    Admission(database).look()
    assert rows("SELECT task_id, count(*), min(status) FROM celeriac.worker_tasks WHERE role = 'work' GROUP BY 1") == [
        ("mine", 1, "completed"), ("new", 1, "pending")
    ]  # fmt: skip
