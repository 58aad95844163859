"""A resumed account comes back whole, also beside somebody who holds one of its tasks."""

from __future__ import annotations

import pytest

from celeriac.dispatch import parking
from celeriac.dispatch.passes import Dispatcher
from celeriac.operate import policies, prioritise
from celeriac.store.connections import Database
from celeriac.store.invariants import violations
from celeriac.store.plans import lookups
from tests.postgres.conftest import new_task
from tests.postgres.passes import role
from tests.postgres.plans import explain
from tests.postgres.stages import enqueued
from tests.processes import Rows


def parked(database: Database, account: str, n: int) -> None:
    with database.transaction() as connection:
        policies.pause_account(connection, account, by="ann")
    enqueued(database, *(new_task(task_id=f"{account}-{i}", account=account) for i in range(n)))
    with database.transaction() as connection:
        assert parking.park(connection, "work", [account], 100) == n


def unparked(database: Database, batch: int) -> list[str]:
    with database.transaction() as connection:
        return parking.unpark(connection, batch)


def test_a_task_that_somebody_holds_comes_back_afterwards(database: Database, rows: Rows) -> None:
    parked(database, "acme", 3)
    with database.transaction() as connection:
        policies.resume_account(connection, "acme", by="ann")
    with database.transaction() as operator:
        held = prioritise.hold(operator, "acme-1")
        assert held
        prioritise.prioritise(operator, {held.id: 9}, by="op")
        assert unparked(database, 10) == ["work"]
        assert rows.one("SELECT count(*) FROM celeriac.parked") == 1
    assert unparked(database, 10) == ["work"]
    assert unparked(database, 10) == []
    assert rows.one("SELECT count(*) FROM celeriac.ready") == 3
    with database.statement() as connection:
        assert violations(connection) == []


def test_what_is_parked_of_many_paused_accounts_costs_a_look_no_pass(
    dispatcher: Dispatcher, database: Database, rows: Rows
) -> None:
    """One paused account's task cost each look, every second, two passes that gave nothing."""
    accounts = [f"account-{n}" for n in range(50)]
    enqueued(database, *(new_task(account=account) for account in accounts))
    rows("INSERT INTO account_policies (account, paused) SELECT unnest(CAST(:a AS text[])), true", a=accounts)
    prompt = role(prompt=True)
    assert dispatcher.dispatch_if_due(prompt) == 0
    assert rows.one("SELECT count(*) FROM celeriac.parked") == len(accounts)
    passes = rows("SELECT id, last_at, repeated FROM passes")
    assert passes
    for _ in range(2):
        assert dispatcher.dispatch_if_due(prompt) == 0
        assert rows("SELECT id, last_at, repeated FROM passes") == passes


def test_many_accounts_come_back_in_batches(database: Database, rows: Rows) -> None:
    for account in ("acme", "bolt", "cove"):
        parked(database, account, 3)
    with database.transaction() as connection:
        for account in ("acme", "bolt", "cove"):
            policies.resume_account(connection, account, by="ann")
    left = []
    while unparked(database, 4):
        left.append(rows.one("SELECT count(*) FROM celeriac.parked"))
    assert left == [5, 1, 0]
    assert rows.one("SELECT count(*) FROM celeriac.unparking") == 0


@pytest.mark.usefixtures("old_transaction")
def test_looking_for_parked_tasks_meets_no_dead_ones(database: Database, rows: Rows) -> None:
    """Believed to be few, as those that live are, all of them would be read to find none."""
    rows("INSERT INTO celeriac.tasks (task_id, role) SELECT gen_random_uuid(), 'work' FROM generate_series(1, 20000)")
    rows("DELETE FROM celeriac.tasks")
    rows("ANALYZE celeriac.tasks")
    with database.transaction() as connection, lookups(connection):
        assert explain(connection, parking.UNPARK, batch=100).pages < 100
