"""The queries of docs/runbooks find what they are there for."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import text

from celeriac.store.connections import Database
from tests.processes import ROOT, Rows

#: What locks what a page's first query looks at.
HELD = {
    "missed_schedule": "SELECT FROM celeriac.scheduled_jobs FOR UPDATE",
    "unfair": "SELECT FROM celeriac.ready FOR UPDATE",
    "held_lock": "LOCK TABLE celeriac.tasks IN EXCLUSIVE MODE",
    "locked_table": "LOCK TABLE celeriac.tasks IN EXCLUSIVE MODE",
    "held_snapshot": "CREATE TABLE written (n integer)",
}

#: Pages whose queries tell of the whole server.
OF_THE_SERVER = (
    "connections_full",
    "disk_full",
    "slow_postgres",
    "slow_commits",
    "read_only",
    "schema_behind",
    "schema_ahead",
)

#: What reads the same, keeps its transaction open, and holds nobody up.
READ = {"missed_schedule": "SELECT FROM celeriac.scheduled_jobs", "unfair": "SELECT FROM celeriac.ready"}


def queries(name: str) -> list[str]:
    return re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "runbooks" / f"{name}.md").read_text(), re.DOTALL)


def test_every_page_with_queries_is_looked_at() -> None:
    assert {page.stem for page in (ROOT / "docs" / "runbooks").glob("*.md") if queries(page.stem)} == {
        *HELD,
        *OF_THE_SERVER,
    }


@pytest.mark.parametrize("name", HELD)
def test_the_first_query_of_a_page_finds_who_holds_what_is_held(name: str, database: Database, rows: Rows) -> None:
    first, *others = queries(name)
    assert rows(first) == []
    with database.engine.connect() as open_one:
        pid = open_one.execute(text("SELECT pg_backend_pid()")).scalar_one()
        open_one.execute(text(HELD[name]))
        assert [row[0] for row in rows(first)] == [pid]
    assert [rows(other) for other in others] == [[] for _ in others]


def test_the_page_about_locked_tables_finds_who_builds_an_index(database: Database, rows: Rows) -> None:
    first, *_ = queries("locked_table")
    with database.engine.connect() as open_one:
        open_one.execute(text("CREATE INDEX slow ON celeriac.tasks (account)"))
        assert len(rows(first)) == 1


@pytest.mark.parametrize("name", OF_THE_SERVER)
def test_queries_of_the_whole_server_are_taken(name: str, rows: Rows) -> None:
    for query in queries(name):
        rows(query)


def test_the_queries_only_read_and_who_writes_is_told_to_wait_for_no_lock() -> None:
    statements = [
        (page.stem, statement.strip())
        for page in (ROOT / "docs" / "runbooks").glob("*.md")
        for query in queries(page.stem)
        for statement in query.split(";")
        if statement.strip()
    ]
    assert [one for one in statements if not one[1].startswith("SELECT ")] == []
    index = (ROOT / "docs" / "runbooks" / "README.md").read_text()
    assert "Whoever writes in psql during an incident begins with `SET lock_timeout = '2s';`" in index


@pytest.mark.parametrize("name", READ)
def test_who_only_reads_is_not_blamed(name: str, database: Database, rows: Rows) -> None:
    first, *_ = queries(name)
    with database.engine.connect() as open_one:
        open_one.execute(text(READ[name]))
        assert rows(first) == []
