"""What a handler writes to `self.log` is kept with its task, whatever becomes of it; what is alike is counted."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from celery import _state

from celeriac import Celeriac, insights, testing
from celeriac.insights.tasks.tasks import log_of
from celeriac.repair import prune
from celeriac.run import log as task_log
from celeriac.run.log import TaskLog
from celeriac.store.connections import Database
from tests.processes import Rows

LINES = "SELECT attempt, level, line FROM task_logs ORDER BY id"


@pytest.fixture(autouse=True)
def current(app: Celeriac) -> Iterator[None]:
    before = _state.get_current_app()
    app.set_current()
    with testing.mode("manual"):
        yield
    before.set_current()


def test_each_attempt_keeps_what_it_wrote_whether_it_succeeds_or_fails(app: Celeriac, rows: Rows) -> None:
    @app.task(role="crawl", bind=True, max_retries=1, autoretry_for=(ValueError,), shared=False)
    def crawl(self: Any) -> None:
        self.log.info("page %d of %d", 7, 12)
        self.log.debug("nobody asked")
        if self.request.retries == 0:
            raise ValueError("gone")
        try:
            raise KeyError("x")
        except KeyError:
            self.log.exception("left out")

    task = crawl.delay().row_id
    testing.drain(with_retries=True)
    first, second, third = rows(LINES)
    assert (first, second) == ((1, "INFO", "page 7 of 12"), (2, "INFO", "page 7 of 12"))
    assert third[:2] == (2, "ERROR")
    assert third[2].startswith("left out\nTraceback")
    assert third[2].endswith("KeyError: 'x'\n")
    with app.database.reading() as connection:
        assert [line.attempt for line in log_of(connection, task)] == [1, 2, 2]
        assert insights.get(connection, task)["status"] == "completed"


def test_lines_that_are_alike_are_kept_a_few_times_and_counted(database: Database, rows: Rows) -> None:
    log = TaskLog(database, 7, 1, {})
    for n in range(1_000):
        log.warning("store %d does not answer", n)
    log.info("over")
    log.end()
    kept = [line for _, _, line in rows(LINES)]
    assert kept == [
        *(f"store {n} does not answer" for n in range(5)),
        "over",
        "and 995 more like: store # does not answer",
    ]


def test_a_line_and_a_log_have_a_bound_and_nul_is_text(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_log, "MOST", 2)
    log = TaskLog(database, 7, 1, {})
    for line in ("a\0b", "x" * 5_000, "beyond", "of another kind"):
        log.info(line)
    log.end()
    assert [line for _, _, line in rows(LINES)] == ["a\\0b", "x" * 2_000, "and 2 more"]


def test_whatever_a_handler_logs_raises_nothing(database: Database, rows: Rows) -> None:
    log = TaskLog(database, 7, 1, {})
    for n in range(6):
        log.log(23, "of a level of its own %d", n)
    too_few = "%d of %d"
    log.info(too_few, 1)
    log.info("%(page)d", {"page": 7})
    log.info("half a pair: \ud800")
    log.end()
    assert rows(LINES)[-4:] == [
        (1, "INFO", "%d of %d (1,)"), (1, "INFO", "7"), (1, "INFO", "half a pair: ?"),
        (1, "Level 23", "and 1 more like: of a level of its own #"),
    ]  # fmt: skip


def test_lines_are_written_while_the_attempt_lasts(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TaskLog(database, 7, 1, {})
    log.info("first")
    assert rows(LINES) == []
    monkeypatch.setattr(task_log, "EVERY", 0.0)
    log.info("second")
    assert len(rows(LINES)) == 2


def test_a_postgres_that_refuses_costs_lines_and_no_task(
    app: Celeriac, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(role="crawl", bind=True, shared=False)
    def crawl(self: Any) -> None:
        self.log.info("hello")

    crawl.delay()
    rows("ALTER TABLE task_logs RENAME TO elsewhere")
    assert testing.drain() == {"completed": 1}
    assert "1 lines of task" in caplog.text


def test_it_goes_to_the_process_s_log_with_its_fields(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    TaskLog(database, 7, 2, {"role": "crawl"}).info("hello")
    data: Any = caplog.records[-1]
    assert (data.getMessage(), data.data) == ("hello", {"event": "task.log", "task": 7, "attempt": 2, "role": "crawl"})


def test_elsewhere_than_in_a_run_it_is_a_plain_logger(app: Celeriac) -> None:
    @app.task(role="crawl", bind=True, shared=False)
    def crawl(self: Any) -> str:
        return str(self.log.name)

    assert crawl() == "celeriac.task"


def test_it_goes_with_the_events(app: Celeriac, rows: Rows) -> None:
    rows("""INSERT INTO task_logs (task, attempt, level, line, at)
        SELECT d, 1, 'INFO', 'x', now() - d * interval '1 day' FROM (VALUES (29), (31)) v (d)""")
    assert prune.prune_finished(app) == 1
    assert rows("SELECT task FROM task_logs") == [(29,)]
