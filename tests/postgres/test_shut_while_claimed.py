"""What is claimed and has not begun waits again as soon as its account or its role is paused, whoever pauses it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Connection

from celeriac.dispatch import claim
from celeriac.dispatch.claim import Held
from celeriac.operate import policies
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.finished import registered
from tests.postgres.stages import claimed, enqueued, started
from tests.processes import Rows

STATUS = "SELECT account, status, count(*) FROM worker_tasks GROUP BY 1, 2 ORDER BY 1, 2"


def sql(statement: str) -> Callable[[Connection], object]:
    return lambda connection: connection.exec_driver_sql(statement)


SHUT = {
    "paused": lambda connection: policies.pause_account(connection, "acme", by="ann"),
    "cap": lambda connection: policies.set_account(connection, "acme", by="ann", cap=0),
    "in SQL": sql("INSERT INTO celeriac.account_policies (account, paused) VALUES ('acme', true)"),
    "by an update": sql("""INSERT INTO celeriac.account_policies (account) VALUES ('acme');
        UPDATE celeriac.account_policies SET paused = true"""),
}


def claimed_together(database: Database, *accounts: str) -> None:
    """A ticket nobody has started, with two tasks of each."""
    enqueued(database, *(new_task(account=account) for account in accounts for _ in range(2)))
    with database.transaction() as connection:
        taken = claim.claim(connection, "work", dict.fromkeys(accounts, 2))
        claim.hold(connection, "work", [Held(claim.fresh_token(), taken)])


@pytest.mark.parametrize("how", SHUT)
def test_a_shut_accounts_claimed_tasks_wait_again_and_nobody_elses(database: Database, rows: Rows, how: str) -> None:
    claimed_together(database, "acme", "other")
    with database.transaction() as connection:
        SHUT[how](connection)
    assert rows(STATUS) == [("acme", "pending", 2), ("other", "claimed", 2)]
    assert rows("SELECT losses FROM worker_tasks WHERE losses > 0") == []


def test_what_runs_already_runs_on(database: Database, rows: Rows) -> None:
    enqueued(database, new_task(account="acme"))
    assert started(database, *claimed(database, account="acme"))
    with database.transaction() as connection:
        policies.pause_account(connection, "acme", by="ann")
    assert rows(STATUS) == [("acme", "running", 1)]


def test_a_paused_roles_claimed_tasks_wait_again(database: Database, rows: Rows) -> None:
    registered(rows, "work")
    claimed_together(database, "acme", "other")
    with database.transaction() as connection:
        policies.pause_role(connection, "work", by="ann")
    assert rows(STATUS) == [("acme", "pending", 2), ("other", "pending", 2)]
    assert rows.one("SELECT count(*) FROM celeriac.tickets") == 0


def test_other_changes_of_a_policy_take_nothing_back(database: Database, rows: Rows) -> None:
    with database.transaction() as connection:
        policies.set_account(connection, "acme", by="ann", weight=2)
    claimed_together(database, "acme")
    for change in ({"weight": 3.0}, {"cap": 1}):
        with database.transaction() as connection:
            policies.set_account(connection, "acme", by="ann", **change)  # type: ignore[arg-type]
    assert rows(STATUS) == [("acme", "claimed", 2)]
