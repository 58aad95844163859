"""A claim whose commit takes long is counted once it is there, and can be steered: a standby may be away meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, event

from celeriac.operate import cancel, prioritise
from celeriac.run import start
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.passes import ROLE, Passes
from tests.postgres.stages import PID, WORKER, enqueued
from tests.processes import Rows

TOKEN = "0c1f7f6a-7c1e-4a0e-9a51-1f0b8c1d2e3f"

SINCE = "SELECT held_since FROM celeriac.batcher('work')"


@pytest.fixture
def passed(passes: Passes, database: Database, rows: Rows) -> None:
    """The role has had a pass, whose task is over."""
    enqueued(database, new_task())
    passes.finished()


@contextmanager
def claims(database: Database) -> Iterator[Connection]:
    """A claim without a pass, which has begun 25 s ago; committed at the end."""
    enqueued(database, new_task())
    with database.transaction() as connection:
        start.start_few(connection, "work", 1, TOKEN, worker_id=WORKER, pid=PID)
        connection.exec_driver_sql("UPDATE celeriac.tickets SET claimed_at = claimed_at - interval '25 s'")
        yield connection


def holding(passes: Passes, database: Database, rows: Rows) -> int:
    """What a pass saw the account hold, as it claimed another task of it."""
    enqueued(database, new_task())
    assert passes.dispatcher.run_pass(ROLE).tickets
    (claimants,) = rows("SELECT claimants FROM passes ORDER BY id DESC LIMIT 1")[0]
    return int(claimants[0].get("holding", 0))


@pytest.mark.usefixtures("passed")
def test_a_claim_is_counted_however_long_its_commit_takes(passes: Passes, database: Database, rows: Rows) -> None:
    rows("UPDATE celeriac.batchers SET held_next = held_next - interval '1 minute'")
    with claims(database):
        assert [holding(passes, database, rows) for _ in range(3)] == [0, 1, 2]
    assert [holding(passes, database, rows) for _ in range(3)] == [4, 5, 6]
    assert rows.one(f"SELECT ({SINCE}) = min(claimed_at) FROM tickets")
    (task_id, row) = rows("SELECT task_id, id FROM worker_tasks WHERE status = 'running'")[0]
    with database.transaction() as connection:
        prioritise.prioritise(connection, {row: 7}, by="me")
    with database.transaction() as connection:
        assert cancel.cancel(connection, task_id, by="me", why="")


@pytest.mark.usefixtures("passed")
@pytest.mark.parametrize("claiming", [False, True], ids=["of whoever claims nothing", "that claims"])
def test_an_old_transaction_is_waited_for_only_if_it_claims(
    passes: Passes, database: Database, rows: Rows, claiming: bool
) -> None:
    """Else passes would walk over all that has died since it began."""
    with claims(database) if claiming else database.transaction() as other:
        other.exec_driver_sql("CREATE TABLE somebodys ()")
        holding(passes, database, rows)
        rows("""UPDATE celeriac.batchers SET held_next = held_next - interval '3 minutes',
            held_since = held_since - interval '3 minutes'""")
        before = rows.one(SINCE)
        holding(passes, database, rows)
        holding(passes, database, rows)
        assert (rows.one(SINCE) > before) is not claiming


@pytest.mark.usefixtures("passed")
def test_whether_it_claims_is_not_asked_in_each_pass(passes: Passes, database: Database, rows: Rows) -> None:
    """To answer, Postgres reads every lock that is held, while passes may be made a hundred times a second."""
    asked: list[str] = []
    event.listen(
        passes.dispatcher.database._verbs, "before_cursor_execute",
        lambda *call: asked.append(call[2]) if "pg_locks" in call[2] else None,
    )  # fmt: skip
    with claims(database):
        holding(passes, database, rows)
        rows("UPDATE celeriac.batchers SET held_next = held_next - interval '3 minutes'")
        for _ in range(5):
            holding(passes, database, rows)
    assert len(asked) == 1
