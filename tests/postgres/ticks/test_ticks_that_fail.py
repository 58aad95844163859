"""A schedule that is bad, or that Postgres refuses, is quarantined or rests, and stops no other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from celeriac import Celeriac
from celeriac.schedules.timetable import Timetable
from celeriac.store.failures import is_gone
from tests.postgres.ticks.conftest import TASKS, Put, tick_all
from tests.processes import PATIENCE, Rows, until


def test_a_tick_that_dies_before_its_commit_enqueues_nothing_and_the_next_one_does(
    timetable: Timetable, put: Put, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    put()
    with monkeypatch.context() as broken:
        broken.setattr("celeriac.schedules.tick.advance", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            timetable.tick()
    assert rows(TASKS) == []
    assert tick_all(timetable) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        "cron_expression = 'every tuesday'",
        "timezone = 'Mars/Olympus'",
        "target = 'unheard_of'",
        "kwargs = '{\"m\": 1}'",
    ],
)
def test_a_bad_row_is_quarantined_and_stops_no_other(timetable: Timetable, put: Put, rows: Rows, wrong: str) -> None:
    put("bad")
    put("good")
    rows(f"UPDATE celeriac.scheduled_jobs SET {wrong} WHERE name = 'bad'")
    tick_all(timetable)
    assert [task for (task,) in rows(TASKS)] == [t for (t,) in rows(TASKS) if t.startswith("good@")] != []
    why = str(rows.one("SELECT quarantined FROM celeriac.scheduled_jobs WHERE name = 'bad'"))
    assert (len(why) > 20, why[0], why[-1]) == (True, "«", "»"), "a refusal may quote the call, too"
    assert timetable.tick() is None


def test_a_key_function_that_raises_stops_no_other(app: Celeriac, timetable: Timetable, put: Put, rows: Rows) -> None:
    """Whatever it raises: the schedule stayed the first that was due, and nothing was ticked any more."""

    @app.task(role="keyed", lock_by=lambda given: given["n"]["shop"], prompt=False, shared=False)
    def keyed(n: int) -> None: ...

    put("bad", ago=0.5, target="keyed", kwargs={"n": 7})
    put("good")
    tick_all(timetable)
    assert [task.partition("@")[0] for (task,) in rows(TASKS)] == ["good"]
    why = rows.one("SELECT quarantined FROM celeriac.scheduled_jobs WHERE name = 'bad'")
    assert why == "«TypeError: 'int' object is not subscriptable»"


def test_a_quarantine_shows_no_secret_of_its_call(
    app: Celeriac, timetable: Timetable, put: Put, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither what the schedule says nor the traceback in the log quotes what its role keeps secret."""

    def key(given: dict[str, str]) -> str:
        raise ValueError(f"no account of {given}")

    @app.task(role="keyed", lock_by=key, sensitive=("password",), prompt=False, shared=False)
    def keyed(user: str, password: str) -> None: ...

    put("bad", target="keyed", kwargs={"user": "ann", "password": "kanarienvogel-4711"})
    put("refused", target="keyed", kwargs={"user": "ann", "password": "kanarienvogel-4711", "kanarienvogel-4711": 1})
    tick_all(timetable)
    why = str(rows("SELECT quarantined FROM celeriac.scheduled_jobs"))
    assert "ValueError: no account of {'user': 'ann'" in why
    assert "Traceback" in caplog.text
    assert "kanarienvogel" not in why + caplog.text


def test_what_postgres_refuses_of_one_rests_and_stops_no_other(timetable: Timetable, put: Put, rows: Rows) -> None:
    rows("ALTER TABLE celeriac.tasks ADD CONSTRAINT no_seven CHECK (kwargs <> '{\"n\": 7}')")
    put("bad", ago=0.5, kwargs={"n": 7})
    put("good")
    assert tick_all(timetable) == 1
    assert rows("SELECT name FROM celeriac.scheduled_jobs WHERE next_run_at < now()") == [("bad",)]
    assert timetable.seconds_to_next() != 0.0, "what rests makes nobody hurry"
    rows("ALTER TABLE celeriac.tasks DROP CONSTRAINT no_seven")
    assert until(lambda: tick_all(timetable), "its rest to be over") == 1


def test_the_open_transaction_of_a_caller_keeps_back_only_the_schedule_whose_unique_key_it_has(
    app: Celeriac, timetable: Timetable, put: Put, rows: Rows
) -> None:
    @app.task(role="keyed", prompt=False, shared=False, unique_by="shop", lock_by="shop")
    def keyed(shop: int) -> None: ...

    put("held", ago=0.5, target="keyed", kwargs={"shop": 7})
    put("good")
    with ThreadPoolExecutor(1) as beat, Session(app.database.engine) as session:
        keyed.using(session=session).delay(7)
        assert beat.submit(tick_all, timetable).result(PATIENCE) == 1
        assert [task.partition("@")[0] for (task,) in rows(TASKS)] == ["good"]
        session.rollback()
    assert until(lambda: tick_all(timetable), "the other's turn") == 1


def test_a_postgres_that_is_gone_in_the_middle_of_a_tick_ends_it(
    timetable: Timetable, put: Put, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(connection: Connection, *_: object) -> None:
        connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

    put()
    with monkeypatch.context() as broken:
        broken.setattr("celeriac.schedules.tick.advance", gone)
        with pytest.raises(DBAPIError) as ended:
            timetable.tick()
    assert is_gone(ended.value)
    assert tick_all(timetable) == 1


def test_a_quarantined_row_that_is_mended_runs_again(timetable: Timetable, put: Put, rows: Rows) -> None:
    put("bad")
    rows("UPDATE celeriac.scheduled_jobs SET target = 'unheard_of'")
    tick_all(timetable)
    rows("UPDATE celeriac.scheduled_jobs SET target = 'work'")
    assert tick_all(timetable) == 1
