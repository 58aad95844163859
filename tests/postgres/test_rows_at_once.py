"""The view refuses an UPDATE or DELETE over so many rows that everybody else would wait for its end."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import enqueued
from tests.processes import Rows

ROW_BY_ROW = """DO $$ DECLARE one bigint; BEGIN
    FOR one IN SELECT id FROM celeriac.worker_tasks LOOP
        UPDATE celeriac.worker_tasks SET priority = 7 WHERE id = one;
    END LOOP;
END $$"""


def written(database: Database, *statements: str, most: int | None = 3) -> None:
    with database.transaction() as connection:
        if most is not None:
            connection.execute(text(f"SET LOCAL celeriac.most_rows = {most}"))
        for statement in statements:
            connection.execute(text(statement))


def hint(error: OperationalError) -> str:
    return str(error.orig.diag.message_hint)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("statement", "command"),
    [
        ("UPDATE celeriac.worker_tasks SET priority = 7", "celeriac tasks prioritise 7 --role work"),
        ("UPDATE celeriac.worker_tasks SET status = 'cancelled'", "celeriac tasks cancel --role work"),
        ("DELETE FROM celeriac.worker_tasks", "celeriac tasks cancel --role work"),
        (ROW_BY_ROW, "celeriac tasks prioritise 7 --role work"),
    ],
)
def test_one_row_too_many_is_refused_with_the_command_to_use(
    database: Database, rows: Rows, statement: str, command: str
) -> None:
    enqueued(database, *(new_task() for _ in range(4)))
    before = rows("SELECT * FROM worker_tasks ORDER BY id")
    with pytest.raises(OperationalError, match="more than 3 rows of worker_tasks") as refused:
        written(database, statement)
    assert f"`{command}`" in hint(refused.value)
    assert rows("SELECT * FROM worker_tasks ORDER BY id") == before
    written(database, statement, most=4)
    assert rows("SELECT * FROM worker_tasks ORDER BY id") != before


def test_a_retry_by_hand_is_told_of_as_one(database: Database) -> None:
    enqueued(database, *(new_task() for _ in range(4)))
    written(database, "UPDATE celeriac.worker_tasks SET status = 'failed'", most=4)
    with pytest.raises(OperationalError) as refused:
        written(database, "UPDATE celeriac.worker_tasks SET status = 'pending'")
    assert "`celeriac tasks retry --role work`" in hint(refused.value)


def test_several_statements_of_a_transaction_are_counted_each_for_itself(database: Database, rows: Rows) -> None:
    enqueued(database, *(new_task() for _ in range(3)))
    written(database, *(f"UPDATE celeriac.worker_tasks SET priority = {n}" for n in range(3)))
    assert rows("SELECT DISTINCT priority FROM worker_tasks") == [(2,)]


def test_inserts_are_not_counted(database: Database, rows: Rows) -> None:
    written(database, "INSERT INTO celeriac.worker_tasks (role) SELECT 'work' FROM generate_series(1, 4)")
    assert rows.one("SELECT count(*) FROM worker_tasks") == 4


def test_with_nothing_said_ten_thousand_rows_are_the_most(database: Database) -> None:
    """Counted alone: to write so many takes seconds."""
    one_more = """SELECT celeriac.one_more_row('UPDATE', w, w) FROM generate_series(1, :n),
        (SELECT * FROM jsonb_populate_record(CAST(NULL AS celeriac.worker_tasks), '{"role": "work"}')) w"""
    with database.transaction() as connection:
        connection.execute(text(one_more), {"n": 10_000})
    with pytest.raises(OperationalError, match="more than 10000 rows"), database.transaction() as connection:
        connection.execute(text(one_more), {"n": 10_001})
