"""Commits that wait are named with what they wait for; sessions that write much, or briefly, are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac.insights.fleet.slowness import SlowCommits, slow_commits
from celeriac.store.connections import Database

Asked = Callable[..., SlowCommits | None]

#: Sessions of a busy disk, which no test has: Postgres looks for the name here first.
SESSIONS = """
CREATE TEMPORARY VIEW pg_stat_activity AS
SELECT n + 1000000 AS pid, current_database() AS datname, name AS application_name, CAST('shop' AS name) AS usename,
    'active' AS state, 'client backend' AS backend_type, kind AS wait_event_type, event AS wait_event, query,
    clock_timestamp() - seconds * interval '1 second' AS query_start
FROM (VALUES {rows}) AS v (n, name, kind, event, query, seconds);
SET LOCAL search_path = pg_temp, pg_catalog, public
"""


@pytest.fixture
def asked(database: Database) -> Asked:
    def ask(*sessions: tuple[str, str, str, str, float]) -> SlowCommits | None:
        rows = ", ".join(f"({n}, {str(one)[1:-1]})" for n, one in enumerate(sessions))
        with database.transaction() as connection:
            connection.exec_driver_sql(SESSIONS.format(rows=rows).replace("%", "%%"))
            met = slow_commits(connection)
            connection.exec_driver_sql("ROLLBACK")
            return met

    return ask


def test_who_waits_for_the_disk_is_named_beside_who_keeps_it_busy(asked: Asked) -> None:
    met = asked(
        ("celeriac worker-1", "IO", "WalSync", "COMMIT", 4.0),
        ("celeriac beat", "LWLock", "WALWrite", "INSERT INTO celeriac.beats VALUES (1)", 3.0),
        ("shop", "IO", "WALSync", "SET LOCAL x = 1; END;", 2.5),
        ("loader", "IO", "DataFileExtend", "INSERT INTO facts SELECT 1", 60.0),
    )
    assert met is not None
    assert (met.for_standby, met.sessions, round(met.seconds)) == (False, 3, 4)
    assert met.sentence.startswith(
        "3 sessions wait for their commit, the first for 4 s: for the disk of the write-ahead"
    )
    assert "pid 1000003 (login shop, loader) runs for 1 min: INSERT INTO facts" in met.sentence
    assert met.cure == "SELECT pg_cancel_backend(1000003);"


def test_without_somebody_beside_them_the_disk_is_to_be_looked_at(asked: Asked) -> None:
    met = asked(("celeriac worker-1", "IO", "WalSync", "COMMIT", 4.0))
    assert met is not None
    assert met.cure.startswith("see who else writes to that disk")


@pytest.mark.parametrize(
    "session",
    [
        ("loader", "IO", "WalWrite", "INSERT INTO facts SELECT 1", 60.0),
        ("celeriac worker-1", "IO", "WalSync", "BEGIN ISOLATION LEVEL READ COMMITTED; DELETE FROM history", 60.0),
        ("celeriac worker-1", "IO", "DataFileRead", "COMMIT", 60.0),
    ],
)
def test_who_writes_much_waits_for_no_commit(asked: Asked, session: tuple[str, str, str, str, float]) -> None:
    assert asked(session) is None
