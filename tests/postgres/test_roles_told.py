"""What a role's page tells besides its depth: another release's declaration, since when it is idle, what comes next."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from celeriac import insights
from celeriac.insights.fleet.one_role import Idle, declared, idle
from celeriac.insights.history.minutes import Retries
from celeriac.roles.registry import register
from celeriac.store.connections import Database
from tests.postgres.finished import finished
from tests.processes import Rows


def declare(database: Database, release: int, **definition: Any) -> None:
    with database.transaction() as connection:
        register(connection, [{"role": "work", "definition": definition, "parameters": []}], release)


def otherwise(database: Database) -> tuple[int, dict[str, Any]] | None:
    with database.reading() as connection:
        told = declared(connection, "work")
    assert told is not None
    return told.otherwise and (told.otherwise.release, told.otherwise.options)


def test_what_another_release_declares_is_told_beside_what_is_in_force(database: Database) -> None:
    declare(database, 2, window=5, queue="q")
    assert otherwise(database) is None
    declare(database, 1, window=9, queue="q", chunk=1)
    assert otherwise(database) == (1, {"window": 9, "chunk": 1})
    declare(database, 3, window=9, queue="q")
    assert otherwise(database) == (2, {"window": 5})
    declare(database, 3, window=9, queue="q")
    assert otherwise(database) == (2, {"window": 5}), "the same again changes nothing"
    declare(database, 3, window=7, queue="q")
    assert otherwise(database) == (3, {"window": 9}), "two codes of one release"
    declare(database, 2, window=7, queue="q")
    assert otherwise(database) == (3, {"window": 9}), "who says the same does not differ"


def test_an_idle_role_says_since_when_and_what_makes_its_next_task(database: Database, rows: Rows) -> None:
    def told() -> Idle:
        with database.reading() as connection:
            return idle(connection, "work")

    assert told() == Idle(None, None, None)
    rows("""INSERT INTO scheduled_jobs (name, kind, target, cron_expression, enabled, next_run_at) VALUES
        ('off', 'task', 'work', '@daily', false, '2030-01-01'), ('pass', 'pass', 'work', '@daily', true, '2030-01-01'),
        ('later', 'task', 'work', '@daily', true, '2032-01-01'), ('next', 'task', 'work', '@daily', true, '2031-01-01'),
        ('other', 'task', 'another', '@daily', true, '2030-01-01')""")
    rows("INSERT INTO minutes (role, minute, completed) VALUES ('work', '2026-01-01', 1), ('work', '2026-01-02', 0)")
    day = datetime(2026, 1, 1, tzinfo=UTC)
    assert told() == Idle(day, "next", datetime(2031, 1, 1, tzinfo=UTC)), "also of what is not kept"
    finished(rows)
    assert told().since == rows.one("SELECT max(completed_at) FROM worker_tasks")


def test_the_retries_of_a_role_are_counted_by_themselves(database: Database, rows: Rows) -> None:
    rows("""INSERT INTO minutes (role, minute, completed, failed, completed_again, failed_again)
        SELECT role, until - interval '5 minutes', 9, 9, 3, 1
        FROM minutes_until, unnest(ARRAY['work', 'other']) AS role""")
    with database.reading() as connection:
        assert insights.retries(connection, "work") == Retries(completed=3, failed=1)
        assert insights.retries(connection).completed == 6
