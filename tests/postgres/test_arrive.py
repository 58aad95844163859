"""What a message comes to in a child process, also where something breaks in between: no task stays with nobody."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import psycopg2
import pytest
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac
from celeriac.dispatch.passes import Dispatcher
from celeriac.roles.role import Role
from celeriac.run import arrive, shared, start
from celeriac.run.arrive import run_ticket
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import claimed, enqueued
from tests.processes import Rows, until

STATUS = "SELECT status FROM worker_tasks ORDER BY status"


def declare(app: Celeriac, **options: Any) -> list[str]:
    """The task ids that a role `work` has run."""
    ran: list[str] = []

    @app.task(role="work", shared=False, bind=True, **({"prompt": False, "chunk": 1} | options))
    def work(self: Any) -> None:
        ran.append(self.request.id)

    app.register_roles()
    return ran


def test_a_pass_whose_other_tickets_went_nowhere_runs_its_own(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.publisher, "publish", lambda _: False)
    ran = declare(app)
    enqueued(database, *(new_task() for _ in range(3)))
    rows("ALTER FUNCTION celeriac.release RENAME TO gone")
    assert run_ticket(app, "work", [], "") == {"ran": 1}
    assert len(ran) == 1
    assert rows(STATUS) == [("claimed",), ("claimed",), ("completed",)]


def test_where_nobody_hears_redis_what_waits_there_is_begun(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would fill the window of its role. Its message, if it comes, begins nothing."""
    ran = declare(app, window=1)
    enqueued(database, new_task(), new_task())
    ticket = claimed(database)
    rows("UPDATE tickets SET claimed_at = claimed_at - interval '2 seconds'")
    assert run_ticket(app, "work", [], "") == {"ran": 0}
    monkeypatch.setattr(shared, "alone", lambda: True)
    for _ in range(2):
        run_ticket(app, "work", [], "")
    assert (len(ran), rows(STATUS)) == (2, [("completed",), ("completed",)])
    assert run_ticket(app, "work", *ticket)["ran"] == 0


def test_a_pass_that_breaks_off_after_its_commit_leaves_nothing_running(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(app)
    enqueued(database, *(new_task() for _ in range(3)))
    monkeypatch.setattr(app.publisher, "publish", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_ticket(app, "work", [], "")
    assert rows(STATUS) == [("claimed",), ("claimed",), ("pending",)]


def test_a_lone_task_that_has_expired_is_cancelled_and_not_asked_for_again(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    ran = declare(app)
    (expired,) = enqueued(database, new_task(expires_in=-1.0))
    assert run_ticket(app, "work", [expired.id], "") == {"ran": 0, "expired": 1}
    assert (ran, rows(STATUS)) == ([], [("cancelled",)])


def test_what_is_settled_stays_so_if_the_look_afterwards_fails(app: Celeriac, database: Database, rows: Rows) -> None:
    ran = declare(app, chunk="auto")
    enqueued(database, new_task())
    ticket = claimed(database)
    rows("ALTER TABLE celeriac.batchers RENAME TO gone")
    assert run_ticket(app, "work", *ticket) == {"ran": 1}
    assert (len(ran), rows(STATUS)) == (1, [("completed",)])


MANY = {"window": 2000, "prompt": True, "chunk": "auto"}


def small(rows: Rows, seconds: float = 0.0001) -> None:
    """Tasks of `work` have been measured, and are of so many seconds."""
    rows("INSERT INTO celeriac.batchers (role, seconds_per_task) VALUES ('work', :seconds)", seconds=seconds)


def passes(rows: Rows) -> object:
    return rows.one("SELECT count(*) FROM celeriac.passes")


def test_a_few_that_come_together_and_those_that_come_meanwhile_need_no_pass(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    coming = [2, 1]
    monkeypatch.setattr(arrive, "ON_FOR", 60.0)
    ran = declare(app, **MANY)
    small(rows)
    enqueued(database, *(new_task() for _ in range(3)))
    has_work = Dispatcher.has_work_and_room

    def look(dispatcher: Dispatcher, role: Role) -> bool:
        if coming:
            enqueued(database, *(new_task() for _ in range(coming.pop())))
        return has_work(dispatcher, role)

    monkeypatch.setattr(Dispatcher, "has_work_and_room", look)
    assert run_ticket(app, "work", [], "") == {"ran": 6}
    assert (len(ran), rows(STATUS), passes(rows)) == (6, [("completed",)] * 6, 0)


def test_who_goes_on_for_long_lines_up_behind_the_tickets_of_others(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    kicked: list[tuple[str, str]] = []
    begins, goes_on, is_late = 0.0, 0.01, 60.0
    now = iter([begins, goes_on, is_late])
    monkeypatch.setattr(arrive, "time", SimpleNamespace(monotonic=lambda: next(now)))
    monkeypatch.setattr(app.publisher, "kick", lambda *role: kicked.append(role))
    has_work = Dispatcher.has_work_and_room

    def look(dispatcher: Dispatcher, role: Role) -> bool:
        enqueued(database, new_task())
        return has_work(dispatcher, role)

    monkeypatch.setattr(Dispatcher, "has_work_and_room", look)
    declare(app, **MANY)
    small(rows)
    enqueued(database, new_task())
    assert run_ticket(app, "work", *claimed(database)) == {"ran": 2}
    assert (kicked, passes(rows)) == ([("work", "work")], 0)
    assert sorted(rows(STATUS)) == [("completed",), ("completed",), ("pending",)]


def test_who_ends_a_quick_ticket_of_many_goes_on_with_the_first_of_the_next_pass(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[Any] = []
    monkeypatch.setattr(arrive, "ON_FOR", 60.0)
    monkeypatch.setattr(app.publisher, "publish", lambda tickets: published.extend(tickets) or True)
    ran = declare(app, prompt=True, chunk=20, window=40)
    enqueued(database, *(new_task() for _ in range(100)))
    assert run_ticket(app, "work", [], "") == {"ran": 80}
    assert (len(ran), passes(rows)) == (80, 4)
    assert [len(ticket.ids) for ticket in published] == [20]


def test_behind_a_ticket_of_which_all_has_expired_it_goes_on(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrive, "ON_FOR", 60.0)
    ran = declare(app, prompt=True, chunk=20, window=20)
    enqueued(database, *(new_task(expires_in=-1.0) for _ in range(20)), new_task())
    assert run_ticket(app, "work", [], "") == {"ran": 1, "expired": 20}
    assert (len(ran), rows(STATUS)) == (1, [("cancelled",)] * 20 + [("completed",)])


def test_who_made_a_pass_looks_for_what_came_meanwhile_before_it_runs_its_ticket(
    app: Celeriac, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever kicked for that met the pass under way, and relied on it; and the first task may take an hour."""
    published: list[Any] = []
    at_start: list[int] = []
    coming = [new_task()]

    def publish(tickets: Any) -> bool:
        published.extend(tickets)
        if coming:
            enqueued(database, coming.pop())
        return True

    @app.task(role="work", shared=False, prompt=True, chunk=1)
    def work() -> None:
        at_start.append(len(published))

    app.register_roles()
    monkeypatch.setattr(app.publisher, "publish", publish)
    enqueued(database, new_task(), new_task())
    assert run_ticket(app, "work", [], "") == {"ran": 1}
    assert at_start == [2]


REFUSES = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'the disk is full' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON celeriac.passes FOR EACH ROW EXECUTE FUNCTION refuse()
"""


def test_what_a_ticket_ran_is_told_though_the_pass_after_it_is_refused(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrive, "ON_FOR", 60.0)
    ran = declare(app, prompt=True, chunk=20)
    enqueued(database, *(new_task() for _ in range(60)))
    ticket = claimed(database, n=20)
    rows(REFUSES)
    assert run_ticket(app, "work", *ticket) == {"ran": 20}
    assert (len(ran), rows(STATUS)) == (20, [("completed",)] * 20 + [("pending",)] * 40)


GONE = DBAPIError("x", None, psycopg2.OperationalError("server closed the connection"), connection_invalidated=True)


@pytest.mark.parametrize("few", [True, False], ids=["a few", "a pass"])
def test_a_ticket_that_comes_after_its_answer_was_lost_waits_again(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    """Its process lives, which would keep it from going stale, and nobody would run it."""
    ran = declare(app, **MANY)
    small(rows)
    enqueued(database, *(new_task() for _ in range(3 if few else 30)))
    start_few, locked_pass = start.start_few, Dispatcher._locked_pass
    with database.engine.connect() as late:
        late.exec_driver_sql("SELECT 1")

        def start_few_late(_: Any, *asked: Any, **me: Any) -> Any:
            if start_few(late, *asked, **me) is None:
                return None
            raise GONE

        def pass_late(dispatcher: Dispatcher, _: Any, *asked: Any) -> Any:
            locked_pass(dispatcher, late, *asked)
            raise GONE

        monkeypatch.setattr(start, "start_few", start_few_late)
        monkeypatch.setattr(Dispatcher, "_locked_pass", pass_late)
        assert run_ticket(app, "work", [], "") == {"ran": 0}
        begun = late.exec_driver_sql("SELECT count(*) FROM celeriac.tickets WHERE worker_id IS NOT NULL").scalar_one()
        late.commit()
    assert begun == 1
    until(lambda: not rows("SELECT FROM celeriac.tickets WHERE worker_id IS NOT NULL"), "given back")
    assert (ran, rows(f"{STATUS} LIMIT 1")) == ([], [("pending",)])


def test_who_ends_a_slow_ticket_has_a_pass_refill_the_role(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kick would lie behind all of the role's own tickets."""
    now = count(0.0, 60.0)
    monkeypatch.setattr(arrive, "time", SimpleNamespace(monotonic=lambda: next(now)))
    published: list[Any] = []
    monkeypatch.setattr(app.publisher, "publish", lambda tickets: published.extend(tickets) or True)
    declare(app, **MANY)
    enqueued(database, new_task(), new_task())
    assert run_ticket(app, "work", *claimed(database)) == {"ran": 1}
    assert (len(published), passes(rows)) == (1, 1)


def test_a_kick_whose_tasks_others_took_asks_for_no_pass(app: Celeriac, rows: Rows) -> None:
    declare(app, **MANY)
    assert run_ticket(app, "work", [], "") == {"ran": 0}
    assert run_ticket(app, "work", [7], "") == {"ran": 0}
    assert passes(rows) == 0


@pytest.mark.parametrize("room", ["later", "parked"])
def test_a_kick_finds_what_only_a_pass_does(app: Celeriac, database: Database, rows: Rows, room: str) -> None:
    """What has come due, and what is parked for an account that is paused no more."""
    ran = declare(app, **MANY)
    if room == "later":
        enqueued(database, new_task(delay=0.001))
        until(lambda: app.dispatcher.has_due(app.role_named("work")[0]), "it to be due")
    else:
        rows("INSERT INTO account_policies (account, paused) VALUES ('a', true)")
        enqueued(database, new_task(account="a"))
        app.dispatcher.dispatch(app.role_named("work")[0])
        rows("UPDATE account_policies SET paused = false")
    assert run_ticket(app, "work", [], "")["ran"] == 1
    assert len(ran) == 1
