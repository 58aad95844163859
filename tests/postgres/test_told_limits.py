"""What an operator says of a role's limits goes before what the code declares, from the next task on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import chain
from click.testing import CliRunner

from celeriac import Celeriac
from celeriac.cli import within_celery
from celeriac.errors import Unknown
from celeriac.operate import policies, steer
from celeriac.roles import limits
from celeriac.run import shared
from celeriac.store.connections import Database
from tests.postgres.test_role_limits import declare, say
from tests.postgres.workflows import look_once, run_all, run_once
from tests.processes import Rows

LIMITS = "SELECT rate_limit, is_told, timeout, hard_timeout FROM celeriac.role_limits"


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

    @app.task(role="call", shared=False, prompt=False, window=100, chunk=100, keep="forever", bind=True)
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
        return CliRunner().invoke(within_celery, ["roles", "limit", "call", *words], obj=SimpleNamespace(app=app))

    assert does("--rate", "9/m").exit_code == 0
    assert "rate_limit=2/h" in does("--as-declared").stdout
    assert rows(LIMITS) == [("2/h", False, None, None)]
    assert (does().exit_code, does("--as-declared", "--rate", "1/h").exit_code) == (2, 2)
