"""Delayed and retried tasks are as fair as others: nobody waits behind another account's flood of due ones."""

from __future__ import annotations

from celeriac.dispatch import promote
from celeriac.dispatch.passes import Dispatcher
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.heads import WAITS
from tests.postgres.passes import Passes, finish, role
from tests.postgres.stages import enqueued
from tests.processes import Rows

FLOOD = """
INSERT INTO worker_tasks (task_id, role, account, waits_for, scheduled_for, started_at, retry_count)
SELECT gen_random_uuid(), 'work', :account, 'time', now() - interval '1 hour', now(), 1 FROM generate_series(1, :n)
"""


def test_a_quiet_accounts_due_task_comes_with_the_first_pass_behind_any_flood(passes: Passes, rows: Rows) -> None:
    rows(FLOOD, account="loud", n=3_000)
    rows(FLOOD, account="quiet", n=1)
    rows("UPDATE worker_tasks SET scheduled_for = now() WHERE account = 'quiet'")
    assert passes.given(role(batch_size=10)) == {"loud": 9, "quiet": 1}


def test_of_many_accounts_those_behind_the_cursor_are_looked_at_first(database: Database, rows: Rows) -> None:
    rows(FLOOD, account="a", n=20)
    for n in range(promote.QUIET + 10):
        rows(FLOOD, account=f"b{n:04}", n=1)
    rows("UPDATE worker_tasks SET scheduled_for = now() WHERE account <> 'a'")
    with database.transaction() as connection:
        promote.promote_due(connection, "work", 10, "b0009")
    shown = "SELECT account FROM worker_tasks WHERE waits_for IS NULL AND account <> 'a' ORDER BY account"
    found = [account for (account,) in rows(shown)]
    assert found == [f"b{n:04}" for n in range(10, promote.QUIET + 10)]


def test_quick_retries_of_one_account_do_not_keep_the_window_of_others(
    dispatcher: Dispatcher, passes: Passes, rows: Rows
) -> None:
    """Between passes a round goes on in its account's share, no more: the rest of the window is the next pass's."""
    small = role(window=10, batch_size=10)
    rows(FLOOD, account="loud", n=10)
    rows("INSERT INTO worker_tasks (task_id, role, account) VALUES ('quiet', 'work', 'quiet')")
    assert dispatcher.resume(small) == 10
    assert rows("SELECT count(*) FROM worker_tasks WHERE status = 'claimed'") == [(5,)]
    assert passes.given(small)["quiet"] == 1
    finish(rows)


def test_alone_an_account_resumes_as_much_as_the_window_holds(dispatcher: Dispatcher, rows: Rows) -> None:
    rows(FLOOD, account="loud", n=15)
    assert dispatcher.resume(role(window=10, batch_size=10)) == 15
    assert rows("SELECT count(*) FROM worker_tasks WHERE status = 'claimed'") == [(10,)]


def test_promoting_takes_the_longest_due_first_and_at_most_a_batch(database: Database, rows: Rows) -> None:
    """Beyond it only the first few of an account, for the sake of those behind another's flood."""
    receipts = enqueued(database, *(new_task(delay=1000.0 - n) for n in range(40)), new_task(delay=5000.0))
    rows("UPDATE worker_tasks SET scheduled_for = scheduled_for - interval '2000 s'")
    with database.transaction() as connection:
        assert promote.promote_due(connection, "work", 20).count == 20
    assert [row_id for row_id, waits in rows(WAITS) if not waits] == [r.id for r in receipts[20:40]]
    with database.transaction() as connection:
        assert promote.promote_due(connection, "another role", 99).count == 0
        assert promote.promote_due(connection, "work", 99).count == 20
