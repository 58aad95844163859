"""What comes after a commit never raises: the commit is done, and nobody is told that it failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery.signals import task_failure, task_success
from psycopg2.errors import AdminShutdown
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from celeriac import Celeriac, Task
from celeriac.errors import ConfigurationError
from celeriac.operate.policies import pause_role
from celeriac.run.arrive import run_ticket
from celeriac.store import look
from celeriac.store.connections import Database
from tests.postgres.stages import claimed
from tests.processes import Rows

FAILURES = {
    "pool": PoolTimeout("QueuePool limit of size 5 overflow 20 reached, connection timed out"),
    "postgres": OperationalError("SELECT", {}, AdminShutdown()),
    "descriptors": OSError(24, "Too many open files"),
    "threads": RuntimeError("can't start new thread"),
    "settings": ConfigurationError("REDIS_URL cannot be read"),
}

Spoil = Callable[[], None]


@pytest.fixture(params=FAILURES)
def failure(request: pytest.FixtureRequest) -> BaseException:
    return FAILURES[request.param]


def raising(failure: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise failure

    return fail


#: Each way in which what follows a commit can fail.
SPOILT: dict[str, Callable[[Celeriac, pytest.MonkeyPatch, BaseException], None]] = {
    "no connection": lambda app, patch, e: patch.setattr(app.database._verbs, "connect", raising(e)),
    "no look": lambda _, patch, e: patch.setattr(look, "_move_on", raising(e)),
    "no kick": lambda app, patch, e: patch.setattr(app.enqueuer.kicker, "kick", raising(e)),
    "no enqueuer": lambda app, patch, e: patch.setattr(type(app), "enqueuer", property(raising(e))),
    "no Redis": lambda app, patch, e: patch.setattr(app.publisher, "kick", raising(e)),
}


@pytest.fixture(params=SPOILT)
def spoil(
    request: pytest.FixtureRequest, app: Celeriac, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> Spoil:
    """`spoil()`: from now on it fails."""
    _ = app.enqueuer, app.database
    return lambda: SPOILT[request.param](app, monkeypatch, failure)


@pytest.fixture
def locked(app: Celeriac) -> Task[[int], None]:
    @app.task(name="locked", shared=False, lock_by="k")
    def locked(k: int) -> None: ...

    return locked


def test_a_callers_commit_is_a_commit(
    app: Celeriac, locked: Task[[int], None], database_url: str, rows: Rows, spoil: Spoil
) -> None:
    engine = create_engine(database_url)
    with Session(engine) as session:
        locked.using(session=session).delay(1)
        spoil()
        session.commit()
        session.execute(text("SELECT 1"))
    engine.dispose()
    assert rows.one("SELECT count(*) FROM celeriac.tasks") == 1


def test_a_callers_session_that_forgets_what_it_knew_commits_as_well(
    locked: Task[[int], None], database_url: str, rows: Rows
) -> None:
    engine = create_engine(database_url)
    with Session(engine) as session:
        locked.using(session=session).delay(1)
        session.info.clear()
        session.commit()
    engine.dispose()
    assert rows.one("SELECT count(*) FROM celeriac.tasks") == 1


@pytest.fixture
def told() -> Iterator[list[str]]:
    """What signals tell of the task "work", and hooks."""
    heard: list[str] = []

    def succeeded(sender: Any = None, **_: Any) -> None:
        heard.append("success")

    def failed(sender: Any = None, **_: Any) -> None:
        heard.append("failure")

    task_success.connect(succeeded)
    task_failure.connect(failed)
    yield heard
    task_success.disconnect(succeeded)
    task_failure.disconnect(failed)


class Noting(Task[..., Any]):
    heard: list[str]

    def on_success(self, *_: Any, **__: Any) -> None:
        self.heard.append("on_success")

    def on_failure(self, *_: Any, **__: Any) -> None:
        self.heard.append("on_failure")


@pytest.mark.parametrize("follows", [True, False], ids=["with a follow-up", "without"])
def test_a_success_that_is_committed_is_told_as_one(
    app: Celeriac, database: Database, locked: Task[[int], None], rows: Rows, told: list[str], failure: BaseException,
    monkeypatch: pytest.MonkeyPatch, follows: bool,
) -> None:  # fmt: skip
    """A handler's session commits with the outcome, and what looks after that has no connection."""

    @app.task(name="work", bind=True, shared=False, prompt=False, lock_by="n", keep="forever", base=Noting)
    def work(self: Any, n: int) -> str:
        self.heard = told
        self.session.execute(text("CREATE TABLE public.written ()"))
        if follows:
            locked.delay(1)
        monkeypatch.setattr(app.database, "statement", once)
        return "done"

    def once(**_: Any) -> None:
        monkeypatch.undo()
        looked.append(failure)
        raise failure

    looked: list[BaseException] = []
    work.delay(1)
    run_ticket(app, "work", *claimed(database, "work"))
    assert looked == [failure]
    assert rows("SELECT status, result FROM worker_tasks WHERE role = 'work'") == [("completed", "done")]
    assert rows.one("SELECT to_regclass('public.written') IS NOT NULL")
    assert [what for what in told if "fail" in what] == []
    assert sorted(told) == ["on_success", "success"]


def test_a_transaction_of_the_engines_is_done_as_well(
    app: Celeriac, failure: BaseException, monkeypatch: pytest.MonkeyPatch, rows: Rows
) -> None:
    """What it does after its commit: it looks, logs and counts, and kicks."""

    @app.task(name="work", shared=False)
    def work() -> None: ...

    app.register_roles()
    for part in ("after", "asked"):
        for limited in (False, True):
            if limited:
                app.database.limit(lock=5, statement=5)
            with monkeypatch.context() as patch:
                patch.setattr(look, part, raising(failure))
                with app.database.transaction() as connection:
                    pause(connection)
                    look.ask(connection, ["k"])
                with app.database.statement() as connection:
                    look.ask(connection, ["k"])
            with app.database.transaction() as connection:
                assert connection.execute(text("SELECT 1")).scalar_one() == 1
    app.database.on_ready = raising(failure)
    with app.database.transaction() as connection:
        look.tell(connection, ["work"])


def pause(connection: Connection) -> None:
    pause_role(connection, "work", by="t", why="")
