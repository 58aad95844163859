"""The window by measure, in SQL: the same rule as in Python, and what surfaces tell of it."""

from __future__ import annotations

from itertools import product

import pytest
from sqlalchemy import text

from celeriac import Celeriac, insights
from celeriac.dispatch.window import ahead, refill_below, window
from celeriac.roles.role import Role
from celeriac.store.connections import Database
from tests.processes import Rows

WORKER = """INSERT INTO celeriac.workers (worker_id, hostname, pid, queues, concurrency, last_heartbeat_at)
    VALUES (:name, 'here', 1, '["work"]', :slots, now() - :ago * interval '1 second')"""

OF = text("SELECT celeriac.window_of(:said, :slots, :seconds, :ahead)")

ROLES = (Role(name="work"), Role(name="work", prompt=False, every=30), Role(name="work", window=7))


def test_sql_and_python_have_one_rule(database: Database) -> None:
    with database.statement() as connection:
        measured = (None, 0.0, 2e-5, 0.02, 0.2, 1.0, 5.0, 3600.0)
        for role, slots, seconds in product(ROLES, (0, 1, 4, 500, 10_000), measured):
            given = {"said": role.window, "slots": slots, "seconds": seconds, "ahead": ahead(role)}
            assert connection.execute(OF, given).scalar_one() == window(role, slots, seconds), given


@pytest.mark.parametrize(("said", "size", "newcomer"), [(None, 24, 1.0), (2000, 2000, 99.8)])
def test_surfaces_tell_the_window_and_what_a_newcomer_waits_for(
    app: Celeriac, database: Database, rows: Rows, said: int | None, size: int, newcomer: float
) -> None:
    @app.task(role="work", shared=False, **({} if said is None else {"window": said}))
    def work() -> None: ...

    app.register_roles()
    rows(WORKER, name="a", slots=4, ago=0)
    rows(WORKER, name="silent", slots=4, ago=1000)
    rows("INSERT INTO celeriac.batchers (role, seconds_per_task) VALUES ('work', 0.2)")
    with database.statement() as connection:
        (depth,) = insights.depth(connection, "work")
    assert (depth.window, depth.newcomer_seconds) == (size, pytest.approx(newcomer))


def test_what_nobody_has_measured_or_nobody_serves_has_no_figure(app: Celeriac, database: Database, rows: Rows) -> None:
    @app.task(role="work", shared=False)
    def work() -> None: ...

    app.register_roles()
    for measured in (None, 0.2):
        rows("DELETE FROM celeriac.batchers")
        rows("INSERT INTO celeriac.batchers (role, seconds_per_task) VALUES ('work', :s)", s=measured)
        with database.statement() as connection:
            assert insights.depth(connection, "work")[0].newcomer_seconds is None


def test_room_is_asked_by_the_window_of_now(app: Celeriac, rows: Rows) -> None:
    """Claimed is what the window holds; below `refill_below` there is room again."""

    @app.task(role="work", shared=False, chunk=1)
    def work() -> None: ...

    app.register_roles()
    role = work.role
    rows(WORKER, name="a", slots=4, ago=0)
    rows("INSERT INTO celeriac.batchers (role, seconds_per_task) VALUES ('work', 1.0)")
    work.bulk([()] * 100)
    taken = sum(len(ticket.ids) for ticket in app.dispatcher.claim(role))
    assert taken == window(role, 4, 1.0) == 8
    rows("UPDATE celeriac.tickets SET worker_id = 'a', worker_pid = 1, started_at = now(), heartbeat_at = now()")
    below = refill_below(role, 4, 1.0)
    for active in range(taken, below - 2, -1):
        assert app.dispatcher.has_work_and_room(role) is (active < below), active
        rows("DELETE FROM celeriac.tasks WHERE id = (SELECT ids[1] FROM celeriac.tickets LIMIT 1)")
        rows("DELETE FROM celeriac.tickets WHERE token = (SELECT token FROM celeriac.tickets LIMIT 1)")
