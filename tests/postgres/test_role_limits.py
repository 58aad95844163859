"""A role's rate holds over all workers, and what an operator says of its limits goes before what the code declares."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from celeriac import Celeriac
from celeriac.errors import BadValue, ConfigurationError
from celeriac.operate import policies
from celeriac.roles import limits
from celeriac.roles.rates import rate
from celeriac.run.arrive import run_ticket
from celeriac.store.connections import Database
from tests.postgres.workflows import run_all
from tests.processes import Rows

HALF_AN_HOUR_LATER = "UPDATE celeriac.role_limits SET taken_at = taken_at - interval '30 minutes'"


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
