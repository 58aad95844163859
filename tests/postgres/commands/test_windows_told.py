"""A window that somebody has said and that keeps a newcomer waiting is told in seconds: `check`, `top`, `status`."""

from __future__ import annotations

import pytest

from celeriac import Celeriac
from tests.postgres.commands.results import Run, value
from tests.processes import Rows

SERVED = """INSERT INTO celeriac.workers (worker_id, hostname, pid, queues, concurrency)
    VALUES ('w', 'here', 1, '["said", "left_out"]', 4)"""
MEASURED = "INSERT INTO celeriac.batchers (role, seconds_per_task) VALUES ('said', 0.2), ('left_out', 0.2)"


def test_a_newcomers_wait_is_told_where_a_window_was_said(run: Run, app: Celeriac, rows: Rows) -> None:
    @app.task(shared=False, role="said", window=2000)
    def said() -> None: ...

    @app.task(shared=False, role="left_out")
    def left_out() -> None: ...

    app.register_roles()
    assert value(run("check", "--json"))["notes"] == []
    rows(SERVED)
    rows(MEASURED)
    (note,) = value(run("check", "--json"))["notes"]
    assert note.startswith("role 'said': with window=2000 a newcomer waits 99.8 s for what is claimed")
    assert value(run("check", "--json"))["problems"] == []
    wait = "where its window of 2,000 is full, a newcomer waits 99.8 s for what is claimed"
    assert wait in run("accounts", "list", "said").output
    depths = {depth["role"]: depth for depth in value(run("status", "--json"))["roles"]}
    assert depths["said"]["newcomer_seconds"] == pytest.approx(99.8)
    assert depths["left_out"]["newcomer_seconds"] == pytest.approx(1.0)


def test_a_newcomers_wait_for_the_long_tasks_of_others_is_told_too(run: Run, app: Celeriac, rows: Rows) -> None:
    """The same workers run both: between two starts of the short ones a long one may have its turn."""

    @app.task(shared=False, role="said")
    def short() -> None: ...

    @app.task(shared=False, role="left_out")
    def long() -> None: ...

    app.register_roles()
    rows(SERVED)
    rows("INSERT INTO celeriac.batchers (role, seconds_per_task) VALUES ('said', 0.2), ('left_out', 60)")
    assert value(run("check", "--json"))["notes"] == []
    long.bulk([()] * 4)
    app.dispatch("left_out")
    (note,) = value(run("check", "--json"))["notes"]
    assert note.startswith("role 'said': a newcomer waits 300 s for the turns of roles with longer tasks")
    depths = {depth["role"]: depth for depth in value(run("status", "--json"))["roles"]}
    assert depths["said"]["newcomer_seconds"] == pytest.approx(301.0)
    assert depths["left_out"]["newcomer_seconds"] == pytest.approx(15.0)
