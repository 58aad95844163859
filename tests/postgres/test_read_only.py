"""A server that takes no writes, as after a failover behind one address, or for want of disk: who met it goes on by
itself once there are writes, and no task fails for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, make_url, text

from celeriac import Celeriac, NotReady, Settings
from celeriac.doctor import examine
from celeriac.run.arrive import run_ticket
from celeriac.store import pools
from celeriac.store.connections import Database
from tests.conftest import Servers
from tests.postgres.stages import claimed
from tests.processes import Rows

STATUS = "SELECT status, waits_for, losses, retry_count, error_message FROM worker_tasks WHERE role = 'work'"

Does = Callable[[Any], object]


@pytest.fixture
def run(app: Celeriac, database: Database, rows: Rows) -> Callable[[Does], tuple[Any, ...]]:
    """Runs a task once and returns its row."""
    rows("CREATE TABLE notes (what text)")

    def run_once(does: Does) -> tuple[Any, ...]:
        @app.task(role="work", bind=True, shared=False, prompt=False, keep="forever", max_losses=1, max_retries=0)
        def work(self: Any) -> None:
            does(self)

        app.register_roles()
        work.delay()
        run_ticket(app, work.name, *claimed(database, "work"))
        ((*row,),) = rows(STATUS)
        return tuple(row)

    return run_once


def notes(task: Any) -> None:
    task.session.execute(text("INSERT INTO notes VALUES ('seen')"))


def notes_early(task: Any) -> None:
    with task.early_commit() as session:
        session.execute(text("INSERT INTO notes VALUES ('seen')"))


def reads(task: Any) -> None:
    """Its outcome is to be committed in the same session."""
    task.session.execute(text("SELECT 1"))


@pytest.mark.parametrize("does", [notes, notes_early, reads])
def test_a_handler_that_meets_it_waits_and_loses_nothing(
    app: Celeriac, run: Callable[[Does], tuple[Any, ...]], does: Does
) -> None:
    said = {"options": "-c default_transaction_read_only=on"}
    event.listen(app.database.engine, "do_connect", lambda *given: given[3].update(said))
    *row, why = run(does)
    assert row == ["pending", "time", 0, 0]
    assert "in a read-only transaction" in why


def test_a_handler_that_has_said_so_itself_fails(run: Callable[[Does], tuple[Any, ...]]) -> None:
    def does(task: Any) -> None:
        task.session.execute(text("SET TRANSACTION READ ONLY"))
        notes(task)

    assert run(does)[0] == "failed"


@pytest.fixture
def other(database_url: str, redis_url: str) -> Iterator[Celeriac]:
    """An app of another process, whose connections come later."""
    other = Celeriac("other", settings=Settings(database_url=database_url, redis_url=redis_url), set_as_current=False)

    @other.task(name="work", role="work", shared=False)
    def work() -> None: ...

    other.register_roles()
    other.database.close_idle()
    yield other
    other.publisher.close()
    other.database.dispose()


@contextmanager
def no_writes(servers: Servers, url: str) -> Iterator[None]:
    """For sessions that begin meanwhile, for as long as they last."""
    name = make_url(url).database
    servers.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        yield
    finally:
        servers.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")


def asks(app: Celeriac) -> None:
    with app.database.statement() as connection:
        connection.exec_driver_sql("SELECT 1")


def sends(app: Celeriac) -> None:
    with pytest.raises(NotReady, match="takes no writes"):
        app.tasks["work"].delay()


def has_a_session(app: Celeriac) -> None:
    with app.database.engine.connect() as connection:
        connection.exec_driver_sql("SELECT 1")


@pytest.mark.parametrize("meets_it", [asks, sends, has_a_session])
def test_who_met_it_writes_at_once_when_it_is_over(
    other: Celeriac,
    servers: Servers,
    database_url: str,
    meets_it: Callable[[Celeriac], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its connections would be read-only for as long as they last."""
    with no_writes(servers, database_url):
        meets_it(other)
    monkeypatch.setattr(pools, "READ_ONLY_FOR", 0.0)
    assert other.tasks["work"].delay().id
    with other.database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE written ()")


def test_the_doctor_says_so(other: Celeriac, servers: Servers, database_url: str) -> None:
    with no_writes(servers, database_url):
        first = examine(other)[0]
    assert (first.check, first.ok) == ("writes", False)
    assert "default_transaction_read_only" in first.says
