"""A role's rate holds over all workers, and what an operator says of its limits goes before what the code declares."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import chain
from click.testing import CliRunner

from celeriac import Celeriac
from celeriac.cli import within_celery
from celeriac.errors import BadValue, ConfigurationError, Unknown
from celeriac.operate import policies, steer
from celeriac.roles import limits
from celeriac.roles.rates import rate
from celeriac.run import shared
from celeriac.run.arrive import run_ticket
from celeriac.store.connections import Database
from tests.postgres.workflows import look_once, run_all, run_once
from tests.processes import Rows

HALF_AN_HOUR_LATER = "UPDATE celeriac.role_limits SET taken_at = taken_at - interval '30 minutes'"
LIMITS = "SELECT rate_limit, is_told, timeout, hard_timeout FROM celeriac.role_limits"


def declare(app: Celeriac, ran: list[int], **options: Any) -> Any:
    @app.task(role="call", shared=False, prompt=options.pop("prompt", True), chunk=100, keep="forever", **options)
    def call(n: int) -> None:
        ran.append(n)

    app.register_roles()
    return call


def say(database: Database, role: str = "call", **changes: Any) -> policies.Change:
    with database.transaction() as connection:
        return policies.set_limits(connection, role, by="op", **changes)


# -- rates -------------------------------------------------------------------------------------------------------------


def test_no_more_begin_than_the_rate_lets(app: Celeriac, rows: Rows) -> None:
    ran: list[int] = []
    call = declare(app, ran, rate_limit="2/h")
    call.bulk([(n,) for n in range(5)])
    run_all(app)
    assert ran == [0, 1]
    assert app.dispatcher.run_pass(call.role).why_nothing == "the rate limit is reached"
    rows(HALF_AN_HOUR_LATER)
    run_all(app)
    assert ran == [0, 1, 2]
    for _ in range(5):
        rows(HALF_AN_HOUR_LATER)
    run_all(app)
    assert ran == [0, 1, 2, 3, 4]
    assert rows("SELECT max(retry_count), max(tries), count(*) FROM worker_tasks") == [(0, 0, 5)]


def test_no_rest_saves_up_more_than_one_period(app: Celeriac, rows: Rows) -> None:
    ran: list[int] = []
    call = declare(app, ran, rate_limit="2/h")
    rows("UPDATE celeriac.role_limits SET taken_at = taken_at - interval '1 year'")
    call.bulk([(n,) for n in range(5)])
    run_all(app)
    assert ran == [0, 1]


def test_a_task_that_a_kick_names_begins_by_the_rate(app: Celeriac, rows: Rows) -> None:
    ran: list[int] = []
    call = declare(app, ran, rate_limit="1/h")
    for n in range(2):
        assert call.delay(n).is_new
        run_ticket(app, "call", [rows.one("SELECT max(id) FROM worker_tasks")], "")
    assert ran == [0]


def test_a_ticket_that_was_given_out_before_begins_by_the_rate(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tickets lie in Redis when workers come back: what may not begin waits again, unharmed."""
    ran: list[int] = []
    call = declare(app, ran)
    call.bulk([(n,) for n in range(5)])
    monkeypatch.setattr(type(app.publisher), "publish", lambda *_: True)
    tickets = app.dispatcher.claim(call.role)
    say(database, rate_limit="3/h")
    for ticket in tickets:
        run_ticket(app, "call", list(ticket.ids), ticket.token)
    assert ran == [0, 1, 2]
    assert rows("SELECT status, retry_count, losses, waits_for FROM worker_tasks WHERE status = 'pending'") == [
        ("pending", 0, 0, None)
    ] * 2  # fmt: skip


def test_who_takes_at_once_takes_no_more_together(app: Celeriac, database: Database) -> None:
    declare(app, [], rate_limit="40/h")
    taken: list[int] = []

    def take() -> None:
        for _ in range(10):
            with app.database.transaction() as connection:
                taken.append(limits.take(connection, "call", 2))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == 40


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("10/m", "10/m"),
        (5, "5/s"),
        (0.5, "0.5/s"),
        ("2.5/h", "2.5/h"),
        ("7", "7/s"),
        (0, None),
        ("0/m", None),
        ("10.0/m", "10/m"),
        (1 / 3600, "0.0002777777777777778/s"),
        (1 / 86400, "0.000011574074074074073/s"),
        (4e-7, "0.0000004/s"),
        ("0.00005/m", "0.00005/m"),
        (1e6, "1000000/s"),
    ],
)
def test_rates_are_said_as_celery_says_them(app: Celeriac, given: Any, kept: str | None) -> None:
    assert rate(given) == kept
    assert declare(app, [], rate_limit=given).role.rate_limit == kept
    app.conf.task_default_rate_limit = given

    @app.task(role="other", shared=False)
    def other() -> None: ...

    assert other.role.rate_limit == kept


@pytest.mark.parametrize("given", ["ten", "10/d", -1, True, float("nan"), "1e9/s", [10], 1e-9, "0.0001/h", 1000001])
def test_what_is_no_rate_is_refused(app: Celeriac, database: Database, given: Any) -> None:
    declare(app, [])
    with pytest.raises(ConfigurationError, match=r"role 'wrong': rate_limit=.*give a number a second or a text such"):
        app.task(role="wrong", rate_limit=given, shared=False)(lambda: None)
    with pytest.raises(BadValue, match=r"rate_limit=.*give a number a second"):
        say(database, rate_limit=given)


def test_a_rate_of_less_than_one_a_day_goes_with_time_limits_that_were_told(app: Celeriac, database: Database) -> None:
    ran: list[int] = []
    call = declare(app, ran, rate_limit=1 / 86400)
    say(database, timeout=5.0)
    call.bulk([(n,) for n in range(2)])
    run_all(app)
    assert ran == [0]


def test_a_rate_that_passes_never_reach_is_refused(app: Celeriac) -> None:
    with pytest.raises(
        ConfigurationError, match="rate_limit='10/s' is never reached with prompt=False: a pass each 30"
    ):
        declare(app, [], rate_limit="10/s", prompt=False)
    assert declare(app, [], rate_limit="100/m", prompt=False).role.rate_limit == "100/m"


def test_a_pass_is_not_worth_it_while_tickets_wait_for_all_the_tokens(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = declare(app, [], rate_limit="3/h")
    call.bulk([(n,) for n in range(5)])
    monkeypatch.setattr(type(app.publisher), "publish", lambda *_: True)
    assert app.dispatcher.dispatch_if_due(call.role) == 3
    assert not app.dispatcher.has_work_and_room(call.role)
    rows("UPDATE celeriac.role_limits SET rate_limit = '4/h', tokens = 4")
    assert app.dispatcher.has_work_and_room(call.role)


# -- what operators say ------------------------------------------------------------------------------------------------


def test_what_an_operator_says_holds_until_the_code_declares_another(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    ran: list[int] = []
    call = declare(app, ran, timeout=7)
    assert rows(LIMITS) == []
    change = say(database, rate_limit="1/h", timeout=3.0)
    assert change.before == {"rate_limit": None, "timeout": 7, "hard_timeout": None}
    assert policies.limits_in_words(change) == "call: rate_limit=1/h, timeout=3.0"
    app.register_roles()
    assert rows(LIMITS) == [("1/h", True, 3, None)]
    call.bulk([(n,) for n in range(3)])
    run_all(app)
    assert ran == [0]
    assert app.limited.of("call").applied(call.role).timeout == 3
    say(database, rate_limit=None)
    run_all(app)
    assert ran == [0, 1, 2]
    rows('UPDATE celeriac.roles SET definition = definition || \'{"rate_limit": "9/m"}\'')
    with database.transaction() as connection:
        limits.register(connection, ["call"])
    assert rows(LIMITS) == [("9/m", False, None, None)]
    with pytest.raises(Unknown, match="no role 'nobody'"):
        say(database, "nobody", rate_limit=1)
    assert rows("SELECT action, target FROM celeriac.audit ORDER BY id") == [("limits", "call")] * 2


@pytest.fixture
def watched(database: Database) -> Iterator[Callable[[], None]]:
    """As in a worker: a call is its parent's look at what has changed."""

    def look() -> None:
        with database.transaction() as connection:
            shared.note_limits(limits.as_of(connection))

    look()
    yield look
    shared.note_limits(0)


def test_what_is_said_while_a_ticket_runs_holds_from_its_next_task_on(
    app: Celeriac, database: Database, rows: Rows, watched: Callable[[], None]
) -> None:
    ran: list[tuple[int, float | None]] = []
    said: dict[int, dict[str, Any]] = {
        1: {"rate_limit": "4/h", "timeout": 60.0}, 3: {"rate_limit": None}, 9: {"rate_limit": "1/h"},
    }  # fmt: skip

    @app.task(role="call", shared=False, prompt=False, chunk=100, keep="forever", bind=True)
    def call(self: Any, n: int) -> None:
        ran.append((n, self.request.timelimit[1]))
        if n in said:
            say(database, **said[n])
            watched()

    app.register_roles()
    call.bulk([(n,) for n in range(20)])
    assert run_once(app)
    assert [n for n, _ in ran] == [*range(11)]
    assert [limit for _, limit in ran] == [300.0] * 2 + [60.0] * 9
    assert rows("SELECT count(*), max(retry_count) FROM worker_tasks WHERE status = 'pending'") == [(9, 0)]


def test_what_runs_no_handler_takes_no_token(app: Celeriac, database: Database, rows: Rows) -> None:
    """What ended without a worker leaves tasks that only tell of it."""
    ran: list[int] = []
    call = declare(app, ran, rate_limit="5/h", prompt=False)
    for n in range(4):
        chain(call.s(n), call.si(n)).apply_async()
    with database.transaction() as connection:
        steer.cancel(connection, [task for (task,) in rows("SELECT id FROM worker_tasks")], by="op")
    call.bulk([(n,) for n in range(5)])
    for _ in range(3):
        run_all(app)
        look_once(app)
    assert sorted(ran) == [0, 1, 2, 3, 4]
    assert rows("SELECT count(*) FROM worker_tasks WHERE status = 'pending'") == [(0,)]


def test_a_change_that_is_committed_late_is_seen(app: Celeriac, database: Database) -> None:
    declare(app, [])

    @app.task(role="other", shared=False)
    def other() -> None: ...

    app.register_roles()
    seen: list[int] = []

    def look() -> None:
        with database.transaction() as connection:
            seen.append(limits.as_of(connection))

    look()
    with app.database.transaction() as late:
        policies.set_limits(late, "call", by="op", rate_limit="1/h")
        say(database, "other", rate_limit="2/h")
        look()
    look()
    look()
    assert len(set(seen)) == 3
    assert seen[2] == seen[3]


def test_what_holds_already_is_said_once(app: Celeriac, database: Database, rows: Rows) -> None:
    """Each worker that hears a broadcast says the same."""
    declare(app, [])
    changed = []
    for _ in range(3):
        say(database, rate_limit="10/m")
        say(database, timeout=3)
        changed += rows("SELECT updated_at FROM celeriac.role_limits")
    assert len(set(changed)) == 1
    assert rows("SELECT count(*) FROM celeriac.audit") == [(2,)]


def test_a_rate_that_is_set_again_gives_no_second_burst(app: Celeriac, database: Database) -> None:
    ran: list[int] = []
    call = declare(app, ran, rate_limit="3/h")
    call.bulk([(n,) for n in range(9)])
    assert run_once(app)
    for _ in range(3):
        say(database, rate_limit="3/h")
        run_all(app)
    assert ran == [0, 1, 2]


def test_limits_as_declared_are_in_force_again(app: Celeriac, database: Database, rows: Rows) -> None:
    """With what the rate before had left, not with a new bucket."""
    ran: list[int] = []
    call = declare(app, ran, rate_limit="2/h", timeout=30)
    say(database, rate_limit="100/h", timeout=None, hard_timeout=60)
    call.bulk([(n,) for n in range(5)])
    run_all(app)
    assert ran == [0, 1]
    with database.transaction() as connection:
        change = policies.reset_limits(connection, "call", by="op", why="done")
    assert change.before == {"rate_limit": "100/h", "timeout": None, "hard_timeout": 60.0}
    assert change.after == {"rate_limit": "2/h", "timeout": 30.0, "hard_timeout": None}
    assert rows(LIMITS) == [("2/h", False, None, None)]
    run_all(app)
    assert ran == [0, 1]
    with database.transaction() as connection, pytest.raises(Unknown):
        policies.reset_limits(connection, "nobody", by="op")


def test_the_command_takes_limits_or_those_declared(app: Celeriac, database: Database, rows: Rows) -> None:
    declare(app, [], rate_limit="2/h")

    def does(*words: str) -> Any:
        return CliRunner().invoke(within_celery, ["limit", "call", *words], obj=SimpleNamespace(app=app))

    assert does("--rate", "9/m").exit_code == 0
    assert "rate_limit=2/h" in does("--as-declared").stdout
    assert rows(LIMITS) == [("2/h", False, None, None)]
    assert (does().exit_code, does("--as-declared", "--rate", "1/h").exit_code) == (2, 2)
