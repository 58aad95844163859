"""What a call says beside its arguments is on its row; what only concerns a message may be said, and changes none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from celeriac import BadArguments, Celeriac, Task
from tests.processes import Rows


@pytest.fixture
def build(app: Celeriac) -> Task[..., Any]:
    @app.task(role="build", prompt=False, time_limit=600, shared=False)
    def build(x: int = 0) -> None: ...

    return build


CONTENT = """
SELECT DISTINCT role, account, status, waits_for, priority, args, kwargs, headers, expires_at, max_retries, timeout,
    parent_id FROM worker_tasks"""

OF_A_MESSAGE: Mapping[str, Any] = {
    "ignore_result": False, "serializer": "json", "compression": "gzip", "retry": False, "add_to_parent": False,
    "retry_policy": {"max_retries": 1}, "reply_to": "me", "delivery_mode": 1,
    "replaced_task_nesting": 0, "link": None, "link_error": [], "origin": "here", "mandatory": False,
    "immediate": False,
    "exchange": "", "queue": "build", "time_limit": None,
}  # fmt: skip


def test_what_only_concerns_a_message_changes_no_row(build: Task[..., Any], rows: Rows) -> None:
    build.delay(1)
    build.apply_async((1,), **OF_A_MESSAGE)
    build.s(1).apply_async(**OF_A_MESSAGE)
    build.app.send_task("build", (1,), **OF_A_MESSAGE)
    assert rows.one("SELECT count(*) FROM worker_tasks") == 4
    assert len(rows(CONTENT)) == 1


@pytest.mark.parametrize("way", ["task", "signature", "name", "two"])
def test_a_call_may_begin_with_retries_used(build: Task[..., Any], app: Celeriac, rows: Rows, way: str) -> None:
    calls: dict[str, Callable[..., Any]] = {
        "task": build.apply_async, "signature": build.s().apply_async,
        "name": lambda a, **o: app.send_task("build", a, **o),
        "two": lambda a, **o: [build.apply_async(a, **o), build.apply_async(a, **o)],
    }  # fmt: skip
    calls[way]((1,), retries=2)
    assert set(rows("SELECT retry_count FROM tasks")) == {(2,)}


@pytest.mark.parametrize("retries", [-1, "two", 1.5, True, 2**31])
def test_retries_of_a_call_that_are_no_number_of_them_are_refused(
    build: Task[..., Any], rows: Rows, retries: Any
) -> None:
    with pytest.raises(BadArguments, match="retries="):
        build.apply_async((1,), retries=retries)
    assert rows.one("SELECT count(*) FROM worker_tasks") == 0


@pytest.mark.parametrize("option", ["producer", "publisher"])
def test_a_row_is_inserted_whatever_publisher_the_call_brings(
    build: Task[..., Any], app: Celeriac, rows: Rows, option: str
) -> None:
    with app.producer_pool.acquire() as publisher:
        assert build.apply_async((1,), **{option: publisher}).is_new
    assert rows.one("SELECT count(*) FROM worker_tasks") == 1


@pytest.mark.parametrize(
    ("limits", "timeout"),
    [
        ({"soft_time_limit": 5}, 5), ({"time_limit": 9}, 9), ({"soft_time_limit": 5, "time_limit": 9}, 5),
        ({"soft_time_limit": 5, "timeout": 3}, 3), ({"soft_time_limit": 0}, None), ({}, None),
    ],
)  # fmt: skip
def test_celerys_time_limits_of_a_call_are_its_timeout(
    build: Task[..., Any], rows: Rows, limits: dict[str, Any], timeout: float | None
) -> None:
    build.apply_async((1,), **limits)
    build.s(1).apply_async(**limits)
    build.app.send_task("build", (1,), **limits)
    assert rows("SELECT timeout FROM worker_tasks") == [(timeout,)] * 3


# -- times -------------------------------------------------------------------------------------------------------------

SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
FROM_NOW = "extract(epoch FROM scheduled_for - created_at)::float, extract(epoch FROM expires_at - created_at)::float"
WAYS: Mapping[str, Callable[..., Any]] = {
    "one": lambda task, **options: task.apply_async((1,), **options),
    "by name": lambda task, **options: task.app.send_task("build", (1,), **options),
    "bulk": lambda task, **options: task.bulk([(1,), {"x": 2}], **options),
}


@pytest.fixture(params=WAYS)
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return WAYS[request.param]


def test_seconds_count_on_the_databases_clock(build: Task[..., Any], rows: Rows, call: Callable[..., Any]) -> None:
    call(build, countdown=100, expires=60.5)
    assert {(round(due, 1), round(expiry, 1)) for due, expiry in rows(f"SELECT {FROM_NOW} FROM worker_tasks")} == {
        (100, 60.5)
    }


@pytest.mark.parametrize(
    "moment",
    [
        SOON, SOON.replace(tzinfo=None), SOON.astimezone(timezone(timedelta(hours=5, minutes=30))), SOON.isoformat(),
        SOON.replace(tzinfo=None).isoformat(),
    ],
    ids=["UTC", "naive", "elsewhere", "text", "naive text"],
)  # fmt: skip
def test_a_moment_is_an_instant_and_without_a_zone_it_is_utc(
    build: Task[..., Any], rows: Rows, call: Callable[..., Any], moment: datetime | str
) -> None:
    call(build, eta=moment, expires=moment)
    assert set(rows("SELECT waits_for, scheduled_for, expires_at FROM worker_tasks")) == {("time", SOON, SOON)}


def test_an_expiry_where_the_task_is_declared_holds_for_every_call_that_says_none(
    app: Celeriac, rows: Rows, call: Callable[..., Any]
) -> None:
    @app.task(name="build", expires=60, shared=False)
    def expiring(x: int) -> None: ...

    call(expiring)
    call(expiring, expires=5)
    found = rows(f"SELECT id, {FROM_NOW} FROM worker_tasks ORDER BY id")
    half = len(found) // 2
    assert [round(expiry, 1) for _, _, expiry in found] == [60] * half + [5] * half
    rows("DELETE FROM worker_tasks")
    call(expiring, expires=None)
    assert {expiry for _, expiry in rows(f"SELECT {FROM_NOW} FROM worker_tasks")} == {None}


# -- transactions ------------------------------------------------------------------------------------------------------


def test_a_row_goes_with_a_session_of_a_registry(
    build: Task[..., Any], app: Celeriac, rows: Rows, call: Callable[..., Any]
) -> None:
    sessions = scoped_session(sessionmaker(app.database.engine))
    call(build, session=sessions)
    assert rows.one("SELECT count(*) FROM worker_tasks") == 0
    sessions.commit()
    assert rows.one("SELECT count(*) FROM worker_tasks") > 0
    sessions.remove()


def test_a_session_of_none_leaves_a_row_in_the_connections_transaction(
    build: Task[..., Any], app: Celeriac, rows: Rows, call: Callable[..., Any]
) -> None:
    with app.database.engine.connect() as connection:
        call(build, session=None, connection=connection)
        connection.rollback()
    assert rows.one("SELECT count(*) FROM worker_tasks") == 0


def test_a_connection_to_the_broker_is_celerys_option_and_changes_nothing(
    build: Task[..., Any], app: Celeriac, rows: Rows, call: Callable[..., Any]
) -> None:
    with app.connection_for_write() as broker, Session(app.database.engine) as session:
        call(build, connection=broker)
        assert rows.one("SELECT count(*) FROM worker_tasks") > 0
        rows("DELETE FROM worker_tasks")
        call(build, session=session, connection=broker)
        assert rows.one("SELECT count(*) FROM worker_tasks") == 0


# -- many --------------------------------------------------------------------------------------------------------------


def test_rows_of_a_query_are_calls_of_a_bulk(build: Task[..., Any], app: Celeriac, rows: Rows) -> None:
    with app.database.statement() as connection:
        build.bulk(connection.exec_driver_sql("SELECT generate_series(1, 3)"))
    build.bulk([[4]])
    assert rows("SELECT kwargs ->> 'x' FROM worker_tasks ORDER BY id") == [("1",), ("2",), ("3",), ("4",)]
