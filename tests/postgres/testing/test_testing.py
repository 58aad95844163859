"""`celeriac.testing`: tasks run in the test's process, on real SQL, by the code that a worker runs."""

from __future__ import annotations

import signal
from functools import cached_property
from typing import Any

import pytest
from celery import chord
from celery.exceptions import SoftTimeLimitExceeded
from celery.result import allow_join_result
from sqlalchemy.orm import Session

from celeriac import Celeriac, testing
from celeriac.errors import BadValue, CeleriacError, ConfigurationError, UnknownRole
from celeriac.testing.servers import disconnect
from tests.processes import Rows

STATES = "SELECT status, count(*) FROM worker_tasks GROUP BY 1 ORDER BY 1"


def test_run_runs_one_task_once_and_says_what_it_came_to(shop: dict[str, Any], rows: Rows) -> None:
    shop["sync"].delay(1)
    done = testing.run(shop["sync"], 2)
    assert (done.status, done.result, done.error, done.exception) == ("completed", 4, None, None)
    assert shop["ran"] == [("sync", 2)]
    assert rows(STATES) == [("completed", 1), ("pending", 1)], "the other one waits"


def test_run_tells_of_a_failure_with_the_handlers_own_error(shop: dict[str, Any]) -> None:
    done = testing.run(shop["broken"])
    assert (done.status, done.result, done.error) == ("failed", None, "ValueError: on purpose")
    assert isinstance(done.exception, ValueError)
    assert [event["kind"] for event in done.events] == ["failed"]


def test_run_tells_of_a_retry_and_the_next_one_is_another_run(shop: dict[str, Any]) -> None:
    done = testing.run(shop["flaky"], 1)
    assert (done.status, done.error) == ("pending", "ConnectionError: no answer")
    assert [event["kind"] for event in done.events] == ["retry"]
    testing.advance(60)
    assert testing.drain() == {"completed": 1}
    assert shop["ran"] == [("flaky", 0), ("flaky", 1)]


def test_run_takes_a_calls_options_and_waits_for_no_delay(shop: dict[str, Any], rows: Rows) -> None:
    done = testing.run(shop["sync"].using(countdown=3600, priority=7), 5)
    assert done.status == "completed"
    assert rows("SELECT priority FROM worker_tasks") == [(7,)]


def test_run_commits_what_a_handler_writes_and_enqueues(shop: dict[str, Any], rows: Rows) -> None:
    testing.run(shop["parent"], 3)
    assert rows("SELECT n FROM seen") == [(3,)]
    testing.assert_enqueued("sync", kwargs={"store": 3}, count=1)


def test_run_says_why_a_task_cannot_run(shop: dict[str, Any]) -> None:
    testing.task_row(shop["sync"], (4,), state="running")
    with pytest.raises(CeleriacError, match=r"cannot run: task \d+ \(sync\) is running and has its lock 'shop:4'"):
        testing.run(shop["sync"], 4)


def test_a_time_limit_ends_a_run(app: Celeriac) -> None:
    @app.task(role="slow", timeout=0.2)
    def slow() -> None:
        while True:
            ...

    for _ in range(2):
        done = testing.run(slow)
        assert done.status == "failed"
        assert isinstance(done.exception, SoftTimeLimitExceeded)
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)  # as whoever took it for a while puts it back


def test_inline_runs_a_call_and_its_follow_ups_before_it_returns(shop: dict[str, Any]) -> None:
    with testing.mode("inline"):
        assert shop["sync"].delay(4).get() == 8
        shop["parent"].delay(5)
        assert shop["ran"] == [("sync", 4), ("sync", 5)]
        failed = shop["broken"].delay()
        with pytest.raises(ValueError, match="on purpose"):
            failed.get()
        again = shop["flaky"].delay(1)
        assert again.state == "RETRY"
        assert chord([shop["add"].s(1, 1)], shop["total"].s())().get() == 2
    shop["sync"].delay(6)
    testing.assert_enqueued("sync", kwargs={"store": 6})


def test_inline_runs_what_a_session_commits_and_nothing_of_one_that_rolls_back(
    app: Celeriac, shop: dict[str, Any]
) -> None:
    with testing.mode("inline"), Session(app.database.engine) as session:
        shop["sync"].using(session=session).delay(1)
        assert shop["ran"] == []
        session.commit()
        assert shop["ran"] == [("sync", 1)]
        shop["sync"].using(session=session).delay(2)
        session.rollback()
    assert testing.drain() == {}


def test_modes_need_no_redis(database_url: str) -> None:
    from celeriac import Settings

    settings = Settings(database_url=database_url, redis_url="redis://127.0.0.1:1")
    app = Celeriac("alone", settings=settings, set_as_current=False)

    @app.task(role="add", shared=False)
    def add(x: int, y: int) -> int:
        return x + y

    with testing.mode("inline", app=app), allow_join_result():
        assert add.delay(1, 2).get() == 3
    assert testing.run(add, 1, 3).result == 4
    disconnect(app)


def test_after_a_mode_the_app_is_as_before(app: Celeriac, shop: dict[str, Any]) -> None:
    enqueuer, publisher = app.enqueuer, app.publisher
    with testing.mode("inline"):
        testing.run(shop["sync"], 1)
    assert (app.enqueuer, app.publisher) == (enqueuer, publisher)


def test_what_is_wrong_is_told(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadValue, match="give 'manual', 'inline' or 'worker'"), testing.mode("eager"):  # type: ignore[arg-type]
        ...
    with pytest.raises(ConfigurationError, match="is no Celeriac app: give app="):
        testing.drain(app=object())  # type: ignore[arg-type]


# -- enqueued ----------------------------------------------------------------------------------------------------------


def test_arguments_are_compared_by_name_however_they_were_given(shop: dict[str, Any]) -> None:
    shop["sync"].delay(7, client="acme")
    shop["sync"].delay(store=8)
    testing.assert_enqueued("sync", args=(7,), account="acme", count=1)
    testing.assert_enqueued("sync", kwargs={"store": 8}, count=1)
    testing.assert_enqueued(shop["sync"], kwargs={"client": "acme"}, count=2)
    shop["add"].delay(1, 2, 3, z=4)
    testing.assert_enqueued(shop["add"], args=(1, 2, 3), kwargs={"z": 4}, count=1)
    testing.assert_enqueued(shop["add"], kwargs={"y": 2})
    testing.refute_enqueued(shop["add"], kwargs={"y": 3})
    assert [row["kwargs"].get("store") for row in testing.enqueued()] == [7, 8, None]


def test_what_is_missing_is_told_with_what_there_is(shop: dict[str, Any]) -> None:
    shop["sync"].delay(7)
    with pytest.raises(
        AssertionError, match=r"none enqueued of 'sync' with kwargs \{'store': 9\}; 1 are unfinished:\n"
    ):
        testing.assert_enqueued("sync", kwargs={"store": 9})
    with pytest.raises(AssertionError, match="1 instead of 2 enqueued of 'sync'"):
        testing.assert_enqueued("sync", count=2)
    with pytest.raises(AssertionError, match="1 enqueued of 'sync'"):
        testing.refute_enqueued("sync")
    with pytest.raises(UnknownRole):
        testing.refute_enqueued("snyc")
    with pytest.raises(TypeError, match="shop"):
        testing.refute_enqueued("sync", kwargs={"shop": 9})


# -- rows and time -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "waits_for"),
    [("pending", None), ("pending", "time"), ("pending", "lock"), ("pending", "account"), ("pending", "members"),
     ("claimed", None), ("running", None), ("completed", None), ("failed", None), ("cancelled", None)],
)  # fmt: skip
def test_a_row_in_any_state_is_legal(shop: dict[str, Any], state: str, waits_for: str | None) -> None:
    row = testing.task_row(shop["sync"], (1,), state=state, waits_for=waits_for, losses=1)
    assert (row["args"], row["kwargs"]["store"]) == ([], 1)
    assert (row["status"], row["waits_for"], row["losses"], row["account"]) == (state, waits_for, 1, "acme")
    assert row["lock_key"] == "shop:1"


def test_a_row_that_cannot_be_is_refused(shop: dict[str, Any]) -> None:
    with pytest.raises(BadValue, match="give one of pending, claimed"):
        testing.task_row(shop["sync"], (1,), state="done")


def test_time_that_passes_makes_due_and_expires(shop: dict[str, Any], rows: Rows) -> None:
    shop["sync"].using(countdown=60).delay(1)
    shop["sync"].using(expires=30).delay(2)
    testing.advance(59)
    assert testing.drain() == {"cancelled": 1}
    testing.advance(1)
    assert testing.drain() == {"completed": 1}
    with pytest.raises(BadValue, match="give seconds"):
        testing.advance(-1)


def test_celerys_eager_mode_runs_a_handler_without_a_row(app: Celeriac, shop: dict[str, Any], rows: Rows) -> None:
    app.conf.task_always_eager = True
    assert shop["sync"].delay(4).get() == 8
    assert shop["sync"].apply((5,)).get() == 10
    with pytest.raises(CeleriacError, match="is not running as a task here"):
        shop["parent"].delay(1).get()
    assert rows("SELECT FROM worker_tasks") == []


def test_a_rate_is_kept_until_time_passes(app: Celeriac, shop: dict[str, Any]) -> None:
    @app.task(role="limited", rate_limit="2/m")
    def limited() -> None: ...

    app.register_roles()
    for _ in range(3):
        limited.delay()
    assert testing.drain() == {"completed": 2}
    with pytest.raises(CeleriacError, match=r"cannot run: .* as its rate lets"):
        testing.run(limited)
    testing.advance(60)
    assert testing.drain() == {"completed": 2}


def test_an_app_that_is_disconnected_keeps_nothing_of_its_database(app: Celeriac) -> None:
    made = [name for name, part in vars(Celeriac).items() if isinstance(part, cached_property) and name != "stack"]
    before = {name: getattr(app, name) for name in made}["database"]
    disconnect(app)
    kept = [name for name, part in vars(app).items() if before in getattr(part, "__dict__", {}).values()]
    assert kept == []
    assert app.database is not before
