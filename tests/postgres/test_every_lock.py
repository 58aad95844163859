"""Nobody's lock stops the engine: no statement waits long for one, whichever table it is on, with nothing set."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from psycopg2.errors import LockNotAvailable
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac, insights
from celeriac.enqueue.outbox import Admission
from celeriac.operate.prioritise import prioritise
from celeriac.operate.steer import cancel
from celeriac.repair import SWEEPS, sweep
from celeriac.store.connections import Database
from celeriac.store.failures import retry_deadlocks
from celeriac.store.patience import BRIEF, DEFAULT, RECURRING, patient, settle_in
from tests.processes import Rows

TABLES = """SELECT 'celeriac.' || relname FROM pg_class
    WHERE relnamespace = 'celeriac'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1"""

#: What a busy machine may add (seconds) to what a statement waits.
BUSY = 3.0

Act = Callable[[Celeriac], object]


def steered(verb: Callable[..., object], what: Any) -> Act:
    """One of two verbs that deadlock is tried again, as by all who call them."""

    def once(app: Celeriac) -> None:
        with app.database.transaction() as connection:
            verb(connection, what, by="test")

    return lambda app: retry_deadlocks(partial(once, app))


def counted(app: Celeriac) -> None:
    with app.database.reading() as connection:
        insights.depth(connection)


#: Each with how long (seconds) a statement of it may wait.
ACTS: dict[str, tuple[Act, float]] = {
    **{f"the sweep {name}": (lambda app, name=name: sweep(app, name), RECURRING) for name in SWEEPS},
    "a pass": (lambda app: app.dispatch("work"), RECURRING),
    "an admission": (lambda app: Admission(app.database).look(), DEFAULT),
    "a bulk": (lambda app: app.tasks["work"].bulk([(1,), (2,)]), DEFAULT),
    "a cancel": (steered(cancel, [1]), DEFAULT),
    "a new priority": (steered(prioritise, {1: 7}), DEFAULT),
    "a count": (counted, DEFAULT),
}


@pytest.fixture
def work(app: Celeriac, rows: Rows) -> Celeriac:
    @app.task(role="work")
    def work(n: int) -> None: ...

    app.register_roles()
    work.delay(0)
    return app


@contextmanager
def locked(url: str, *tables: str) -> Iterator[None]:
    """For at most half a minute: who waits for as long as it takes is late then, and waits no longer."""
    holder = create_engine(url)
    with holder.connect() as connection:
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = '30 s'")
        connection.exec_driver_sql(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
        yield
    holder.dispose()


@contextmanager
def timed(engine: Engine) -> Iterator[dict[int, list[float]]]:
    """How long (seconds) each statement took, by thread."""
    took: dict[int, list[float]] = defaultdict(list)

    def before(*arguments: Any) -> None:
        arguments[4].began = time.monotonic()

    def after(*arguments: Any) -> None:
        took[threading.get_ident()].append(time.monotonic() - arguments[4].began)

    def failed(context: Any) -> None:
        if context.execution_context is not None:
            took[threading.get_ident()].append(time.monotonic() - context.execution_context.began)

    listeners = {"before_cursor_execute": before, "after_cursor_execute": after, "handle_error": failed}
    for name, listener in listeners.items():
        event.listen(engine, name, listener)
    yield took
    for name, listener in listeners.items():
        event.remove(engine, name, listener)


def slowest(app: Celeriac, act: Act, took: dict[int, list[float]]) -> float:
    try:
        act(app)
    except DBAPIError as error:
        assert isinstance(error.orig, LockNotAvailable)  # noqa: PT017 - or it succeeds
    return max(took[threading.get_ident()], default=0.0)


def late(app: Celeriac, acts: dict[str, tuple[Act, float]]) -> dict[str, float]:
    """The acts of which a statement waited for longer than it may, and how long."""
    with timed(app.database._verbs) as took, ThreadPoolExecutor(len(acts)) as threads:
        begun = {name: threads.submit(slowest, app, act, took) for name, (act, _) in acts.items()}
        done = {name: future.result() for name, future in begun.items()}
    return {name: seconds for name, seconds in done.items() if seconds > acts[name][1] + BUSY}


def test_whatever_is_locked_no_statement_waits_long(work: Celeriac, rows: Rows, database_url: str) -> None:
    tables = [name for (name,) in rows(TABLES)]
    assert len(tables) > 40
    with locked(database_url, *tables):
        assert late(work, ACTS) == {}


@pytest.mark.nightly("each table is locked by itself, so that each statement meets its own")
def test_whichever_table_is_locked_no_statement_waits_long(work: Celeriac, rows: Rows, database_url: str) -> None:
    for (table,) in rows(TABLES):
        with locked(database_url, table):
            assert late(work, ACTS) == {}, table


#: What `.delay()` writes to, and what is asked of it.
CALLS: dict[str, Callable[[Any], object]] = {
    "at once": lambda task: task.delay(1),
    "later": lambda task: task.apply_async((1,), countdown=60),
    "with a key": lambda task: task.using(unique_key="k").delay(1),
}


@pytest.mark.parametrize("how", CALLS)
def test_a_call_behind_a_lock_goes_to_the_outbox(work: Celeriac, rows: Rows, database_url: str, how: str) -> None:
    CALLS["with a key" if how != "with a key" else "at once"](work.tasks["work"])  # so that it is connected
    rows("DELETE FROM celeriac.worker_tasks")
    began = time.monotonic()
    with locked(database_url, "celeriac.tasks", "celeriac.history"):
        CALLS[how](work.tasks["work"])
        assert time.monotonic() - began < 3 * BRIEF + BUSY
        assert rows("SELECT count(*) FROM intake") == [(1,)]
    assert Admission(work.database).look() == {"work"}
    assert rows("SELECT count(*) FROM tasks") == [(1,)]


SAID = "SELECT current_setting('lock_timeout'), current_setting('transaction_isolation')"


@pytest.mark.parametrize("pooled", [False, True], ids=["its own connection", "behind a pooler"])
def test_a_statement_says_how_patient_it_is_where_its_session_does_not(
    database_url: str, monkeypatch: pytest.MonkeyPatch, pooled: bool
) -> None:
    """A pooler deals its connections out to others, too: there nothing is left on one."""
    if pooled:
        monkeypatch.setattr("celeriac.store.connections.settle_in", lambda _: False)
    database = Database(database_url)
    expected = {None: "2s", 0.5: "500ms"}
    for seconds, said in expected.items():
        with database.statement() as connection, patient(DEFAULT if seconds is None else seconds):
            assert connection.exec_driver_sql(SAID).one() == (said, "read committed")
        with database.transaction(patience=seconds) as connection:
            assert connection.exec_driver_sql(SAID).one() == (said, "read committed")
        with patient(None), database.transaction() as connection:
            assert connection.exec_driver_sql(SAID).one() == ("0", "read committed")
    for _ in range(3):
        with database.cursor() as cursor:
            cursor.execute(cursor.before + SAID)
            assert cursor.fetchone() == ("150ms", "read committed")
    with database.engine.connect() as connection:
        assert connection.exec_driver_sql(SAID).scalar_one() == "0"
    with database._verbs.connect() as connection:
        raw: Any = connection.connection.dbapi_connection
        with raw.cursor() as cursor:
            cursor.execute(SAID)
            assert cursor.fetchone()[0] == ("0" if pooled else "2s")
    database.dispose()


def test_a_session_that_is_answered_by_another_process_is_a_pooler_s(database: Database) -> None:
    class Pooled:
        """A pooler tells its clients process ids of its own."""

        def __init__(self, raw: Any) -> None:
            self.raw, self.autocommit, self.info = raw, True, type("Info", (), {"backend_pid": 0})

        def cursor(self) -> Any:
            return self.raw.cursor()

    with database.statement() as connection:
        raw = connection.connection.dbapi_connection
        assert not settle_in(Pooled(raw))
        assert settle_in(raw)
