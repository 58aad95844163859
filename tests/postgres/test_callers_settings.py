"""What a caller has set for his session or transaction is as it was after each enqueue in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import chain, group
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.orm import Session

from celeriac import Celeriac
from celeriac.enqueue import outbox
from celeriac.store.connections import Database
from celeriac.store.plans import lookups
from tests.postgres.conftest import new_task
from tests.postgres.stages import enqueued
from tests.processes import Rows

ALL = "SELECT name, setting FROM pg_settings WHERE NOT starts_with(name, 'transaction')"

#: None of them is the default.
THEIRS = {
    "enable_seqscan": "off", "enable_hashjoin": "on", "enable_mergejoin": "off", "jit": "on", "lock_timeout": "1234",
    "statement_timeout": "56789", "search_path": "pg_temp", "idle_in_transaction_session_timeout": "77777",
    "plan_cache_mode": "force_custom_plan", "enable_sort": "off", "synchronous_commit": "local",
    "TimeZone": "Asia/Tokyo", "extra_float_digits": "0",
}  # fmt: skip

Sends = Callable[..., Any]


@pytest.fixture(params=["SET", "SET LOCAL", "as usual"])
def theirs(request: pytest.FixtureRequest, database_url: str) -> Iterator[Connection]:
    """A connection of the caller's own, in a transaction."""
    engine = create_engine(database_url)
    with engine.connect() as connection:
        for name, value in THEIRS.items():
            if request.param != "as usual":
                connection.exec_driver_sql(f"{request.param} {name} = '{value}'")
        yield connection
    engine.dispose()


@pytest.fixture
def work(app: Celeriac) -> Any:
    @app.task(name="work", shared=False, prompt=False)
    def work(n: int = 0) -> None: ...

    @app.task(name="unique", shared=False, prompt=False, unique_by="{n}", lock_by="{n}")
    def unique(n: int = 0) -> None: ...

    app.register_roles()
    return work


def by(**options: Any) -> Sends:
    return lambda app, bound: app.tasks["work"].using(**bound, **options).delay(1)


def twice(app: Celeriac, bound: dict[str, Any]) -> None:
    for _ in range(2):
        app.tasks["work"].using(**bound, task_id="mine").delay(1)


def unique(app: Celeriac, bound: dict[str, Any]) -> None:
    for _ in range(2):
        app.tasks["unique"].using(**bound).delay(1)


def many(app: Celeriac, bound: dict[str, Any]) -> None:
    app.tasks["work"].bulk([(n,) for n in range(3)], **bound)
    app.tasks["unique"].bulk([(n,) for n in (1, 2, 1)], **bound)


def workflow(app: Celeriac, bound: dict[str, Any]) -> None:
    one = app.tasks["work"].si(1)
    both = chain(one, group(one, one), one)
    for _ in range(2):
        both.apply_async(**bound, task_id="flow")


def in_sql(_: Celeriac, bound: dict[str, Any]) -> None:
    (connection,) = bound.values()
    for _ in range(2):
        connection.execute(text("SELECT celeriac.enqueue('work', task_id => 'mine')")).all()
    connection.execute(text("""SELECT celeriac.enqueue('unique', '{"n": 1}')""")).all()


VERBS: dict[str, Sends] = {
    "alone": by(), "named": by(task_id="mine"), "later": by(countdown=60), "expires": by(expires=60),
    "found": twice, "unique": unique, "many": many, "workflow": workflow, "sql": in_sql,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["session", "connection"])
@pytest.mark.parametrize("send", VERBS.values(), ids=VERBS)
def test_what_the_caller_has_set_is_as_it_was(
    app: Celeriac, work: Any, theirs: Connection, rows: Rows, send: Sends, kind: str
) -> None:
    finished = "INSERT INTO worker_tasks (task_id, role, status, worker_id, completed_at) "
    rows(finished + "VALUES ('flow', 'work', 'completed', 'w', now())")
    before: dict[str, str] = dict(theirs.exec_driver_sql(ALL).all())
    send(app, {kind: theirs if kind == "connection" else Session(theirs)})
    now: dict[str, str] = dict(theirs.exec_driver_sql(ALL).all())
    assert {name: now[name] for name in before} == before  # a language that was loaded meanwhile has some of its own
    theirs.commit()
    after = "SELECT name FROM pg_settings WHERE source = 'session' AND setting <> reset_val"
    own = {row.name for row in theirs.exec_driver_sql(after)}
    assert own <= {*THEIRS}


def test_what_a_transaction_of_the_engines_has_set_is_as_it_was_too(database: Database) -> None:
    """The limits of the API, and a plan around a plan."""
    database.limit(lock=3, statement=7)
    enqueued(database, new_task(task_id="mine"))
    with database.reading() as connection:
        before: dict[str, str] = dict(connection.exec_driver_sql(ALL).all())
        with lookups(connection):
            assert connection.exec_driver_sql("SHOW enable_seqscan").scalar_one() == "off"
        assert dict(connection.exec_driver_sql(ALL).all()) == before
    with database.transaction() as connection:
        before: dict[str, str] = dict(connection.exec_driver_sql(ALL).all())
        for _ in range(2):
            outbox.enqueue_or_put(connection, [new_task(task_id="mine")])
        assert dict(connection.exec_driver_sql(ALL).all()) == before
