"""A handler's session whose commit fails through no fault of its own costs the task nothing: it runs again."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg2
import pytest
from sqlalchemy import event, text
from sqlalchemy.orm import Session

from celeriac import Celeriac, Task
from celeriac.run import outcomes
from celeriac.run.arrive import run_ticket
from celeriac.settle import release
from celeriac.store.connections import Database
from celeriac.testing.servers import fresh_name
from tests.postgres.conftest import new_task
from tests.postgres.stages import claimed, running, settled
from tests.processes import Rows

STATUS = "SELECT status, losses, retry_count, tries FROM worker_tasks WHERE role = 'work'"
NOTES = "SELECT count(*) FROM notes"
FOLLOW_UPS = "SELECT count(*) FROM worker_tasks WHERE role = 'next'"

Break = Callable[[Session], object]


@pytest.fixture
def run(app: Celeriac, database: Database, rows: Rows) -> Callable[..., list[str]]:
    """Runs a task once that writes a note and enqueues; `breaks` is called before its commit (or after)."""
    hooks: list[str] = []
    rows("CREATE TABLE notes (what text UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    @app.task(role="next", shared=False)
    def next_one() -> None: ...

    class Hooked(Task):  # type: ignore[type-arg]
        abstract = True

        def on_success(self, *_: Any) -> None:
            hooks.append("success")

        def on_failure(self, *_: Any) -> None:
            hooks.append("failure")

    def run_once(breaks: Break, when: str = "before_commit", keep: Any = "forever", max_losses: int = 3) -> list[str]:
        @app.task(role="work", bind=True, shared=False, base=Hooked, prompt=False, keep=keep, max_losses=max_losses)
        def work(self: Any) -> None:
            self.session.execute(text("INSERT INTO notes VALUES ('seen')"))
            next_one.delay()
            event.listen(self.session, when, breaks)

        app.register_roles()
        work.delay()
        run_ticket(app, work.name, *claimed(database, "work"))
        return hooks

    return run_once


@pytest.fixture
def terminate(app: Celeriac) -> Break:
    """Ends the session's backend, as a restart of Postgres does."""

    def end(session: Session) -> None:
        pid = session.connection().connection.dbapi_connection.info.backend_pid  # type: ignore[union-attr]
        with app.database.statement() as connection:
            connection.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})

    return end


def deadlocked(session: Session) -> None:
    session.execute(text("DO $$ BEGIN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END $$"))


def times_out(session: Session) -> None:
    session.execute(text("SET LOCAL statement_timeout = 10"))
    session.execute(text("SELECT pg_sleep(10)"))


def is_locked_out(session: Session) -> None:
    session.execute(text("DO $$ BEGIN RAISE EXCEPTION 'lock timeout' USING ERRCODE = '55P03'; END $$"))


def taken(session: Session) -> None:
    session.execute(text("INSERT INTO notes VALUES ('seen')"))


def cannot_be_sent(session: Session) -> None:
    session.execute(text("SELECT :value"), {"value": object()})


def test_a_restart_before_the_commit_burns_no_attempt(
    run: Callable[..., list[str]], terminate: Break, rows: Rows
) -> None:
    assert run(terminate) == []
    assert rows(STATUS) == [("pending", 1, 0, 0)]
    assert (rows.one(NOTES), rows.one(FOLLOW_UPS)) == (0, 0)
    ((kind, why),) = rows("SELECT kind, why FROM task_events")
    assert (kind, "not committed" in str(why)) == ("lost", True)


def test_a_deadlock_at_the_commit_burns_no_attempt(run: Callable[..., list[str]], rows: Rows) -> None:
    assert run(deadlocked) == []
    assert rows(STATUS) == [("pending", 1, 0, 0)]
    assert (rows.one(NOTES), rows.one(FOLLOW_UPS)) == (0, 0)


AT_COMMIT = """
CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON notes DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION at_commit()
"""


@pytest.mark.parametrize(
    "says",
    [
        # Raised, as the clock of a statement stops when its COMMIT begins to work: only a busy machine is late for it.
        "RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014'",
        "RAISE EXCEPTION 'canceling statement due to lock timeout' USING ERRCODE = '55P03'",
        "RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'",
        "PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10)",
    ],
)
def test_a_commit_that_meets_a_limit_of_postgres_burns_no_attempt(
    run: Callable[..., list[str]], rows: Rows, says: str
) -> None:
    """The handler has ended by then: it can neither catch that nor retry for it."""
    rows(AT_COMMIT.format(says))
    assert run(lambda _: None) == []
    assert rows(STATUS) == [("pending", 1, 0, 0)]
    assert (rows.one(NOTES), rows.one(FOLLOW_UPS)) == (0, 0)


def test_a_task_that_ends_postgres_each_time_ends(run: Callable[..., list[str]], terminate: Break, rows: Rows) -> None:
    run(terminate, max_losses=1)
    assert rows(STATUS) == [("failed", 1, 0, 0)]


@pytest.mark.parametrize("keep", ["forever", None])
def test_a_commit_whose_answer_was_lost_counts(
    app: Celeriac, run: Callable[..., list[str]], terminate: Break, rows: Rows, keep: Any
) -> None:
    def answer_lost(_: Session) -> None:
        with Session(app.database.engine) as other:
            terminate(other)
            other.execute(text("SELECT 1"))

    assert run(answer_lost, "after_commit", keep) == ["success"]
    assert rows(STATUS) == [("completed", 0, 0, 0)] * (keep is not None)
    assert (rows.one(NOTES), rows.one(FOLLOW_UPS)) == (1, 1)
    assert rows("SELECT kind FROM task_events") == []


@pytest.mark.parametrize("fault", [times_out, is_locked_out, taken, cannot_be_sent])
@pytest.mark.filterwarnings("ignore:Exception raised outside body")
def test_an_error_of_its_own_writes_is_the_attempts(run: Callable[..., list[str]], rows: Rows, fault: Break) -> None:
    assert run(fault) == ["failure"]
    assert rows(STATUS) == [("failed", 0, 0, 1)]
    assert rows.one(NOTES) == 0


#: How a new connection comes to nothing, by what Postgres or the driver says of it.
TURNED_AWAY = {
    "too many connections": {"role": "LOGIN CONNECTION LIMIT 0"},
    "not permitted to log in": {"role": "NOLOGIN"},
    "Connection refused": {"host": "127.0.0.1", "port": 1},
    "could not translate host name": {"host": "no-such-host.invalid"},
    "closed the connection unexpectedly": {"host": "127.0.0.1", "port": "a proxy that hangs up"},
    "OperationalError": {"descriptors": 0},  # whose driver has no words for it
}


@contextmanager
def hanging_up() -> Iterator[int]:
    """The port of a proxy that takes a connection, and ends it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def without_descriptors(*given: Any) -> Any:
    """Connects while this process may open nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        return psycopg2.connect(**given[3])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def turned_away(app: Celeriac, rows: Rows, request: pytest.FixtureRequest) -> Iterator[str]:
    """Handlers get no new connection, for this reason; the engine's own connections live."""
    way, name = dict(TURNED_AWAY[request.param]), fresh_name("nobody")
    with ExitStack() as stack:
        if options := way.pop("role", None):
            rows(f"CREATE ROLE {name} {options}")
            stack.callback(rows, f"DROP ROLE {name}")
            way["user"] = name
        if way.get("port") == "a proxy that hangs up":
            way["port"] = stack.enter_context(hanging_up())
        if "descriptors" in way:
            event.listen(app.database.engine, "do_connect", without_descriptors)
        else:
            event.listen(app.database.engine, "do_connect", lambda *given: given[3].update(way))
        yield request.param


@pytest.mark.parametrize("turned_away", TURNED_AWAY, indirect=True)
def test_a_postgres_that_lets_nobody_in_costs_a_task_nothing_but_time(
    run: Callable[..., list[str]], turned_away: str, rows: Rows
) -> None:
    """However long that lasts: it is no loss that could count against the task."""
    run(lambda _: None, max_losses=1)
    assert rows(STATUS) == [("pending", 0, 0, 0)]
    ((waits_for, why),) = rows("SELECT waits_for, error_message FROM worker_tasks WHERE role = 'work'")
    assert (waits_for, turned_away in str(why)) == ("time", True), why


UP = "CREATE OR REPLACE FUNCTION celeriac.up_since() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT {} $$"


@pytest.mark.parametrize(("up", "losses"), [("now()", 0), ("now() - interval '1 day'", 1)])
def test_what_a_restart_of_postgres_undid_is_no_loss_of_the_tasks(
    database: Database, rows: Rows, up: str, losses: int
) -> None:
    """However many outages meet it: only what Postgres takes back of this task alone counts against it."""
    (task,) = running(database, new_task())
    rows(UP.format(up))
    assert settled(database, outcomes.lost(task, ConnectionError("gone"))) == {task.id}
    assert rows("SELECT status, losses FROM worker_tasks") == [("pending", losses)]


@pytest.mark.parametrize(("up", "stale"), [("now()", 0), ("now() - interval '1 day'", 1)])
def test_a_lease_counts_only_time_in_which_postgres_was_up(database: Database, rows: Rows, up: str, stale: int) -> None:
    """After a restart every worker has a whole lease to report."""
    running(database, new_task())
    rows("UPDATE tickets SET heartbeat_at = now() - interval '1 hour'")
    rows(UP.format(up))
    with database.transaction() as connection:
        assert len(release.stale(connection, 10)) == stale
