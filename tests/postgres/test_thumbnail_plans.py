"""What is asked of sites with thumbnails costs what it finds: no plan reads the sites that are done."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from sqlalchemy import Connection, Executable, create_engine, text
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2

from tasks.stale_thumbnails import count, longest, reset
from tasks.thumbnails import SITES, missing
from tests.postgres.plans import Plan, explain

Clone = Callable[[], str]

SMALL, LARGE = 3_000, 30_000

#: Pages that may be added: the few rows found may lie anywhere, and indexes grow a level.
ALLOWED = 150

DONE = '\'{"previews": {"all": "http://x"}, "thumbnails": {"desktop": "y"}}\''
MISSING = '\'{"previews": {"all": "http://x"}, "thumbnails": {"desktop": null}}\''

#: Nearly all are done; 60 are missing, 60 stuck, 60 in progress for a minute.
FILL = """
INSERT INTO {table} (account_id, status, details, thumbnail_build_in_progress, thumbnail_process_started_at {more})
SELECT (SELECT min(id) FROM accounts), 'PUBLISHED', CASE WHEN n % step < 3 THEN {missing} ELSE {done} END::jsonb,
    n % step IN (1, 2), now() - CASE n % step WHEN 1 THEN interval '3 hours' ELSE interval '1 minute' END {times}
FROM (SELECT n, :n / 60 AS step FROM generate_series(1, :n) AS n) AS sites
"""


def fill(connection: Connection, n: int) -> None:
    connection.execute(text("INSERT INTO accounts (name, email) VALUES ('a', 'b')"))
    for table, more, times in (("agency_websites", "", ""), ("instasites", ", published_at", ", now()")):
        statement = FILL.format(table=table, more=more, times=times, missing=MISSING, done=DONE)
        connection.execute(text(statement.replace('": ', '"\\: ')), {"n": n})


def plain(statement: Executable) -> str:
    compiled = statement.compile(dialect=PGDialect_psycopg2(), compile_kwargs={"literal_binds": True})  # type: ignore[attr-defined]
    return str(compiled)


def plans(connection: Connection) -> Mapping[str, Plan]:
    asked = {"missing": lambda s: missing(s, 0), "reset": lambda s: reset(s, 7200), "count": lambda s: count(s, 7200),
             "longest": lambda s: longest(s, 7200)}  # fmt: skip
    found = {}
    for site in SITES.values():
        for name, statement in asked.items():
            savepoint = connection.begin_nested()
            found[f"{name} of {site.__tablename__}"] = explain(connection, text(plain(statement(site))))
            savepoint.rollback()
    return found


def measured(url: str, n: int, *, analyzed: bool) -> Mapping[str, Plan]:
    engine = create_engine(url)
    with engine.connect() as connection:
        fill(connection, n)
        if analyzed:
            connection.execute(text("ANALYZE agency_websites, instasites"))
        found = plans(connection)
    engine.dispose()
    return found


@pytest.mark.parametrize("analyzed", [False, True])
def test_no_question_reads_the_sites_that_are_done(clone: Clone, analyzed: bool) -> None:
    small, large = (measured(clone(), n, analyzed=analyzed) for n in (SMALL, LARGE))
    assert {name: str(plan) for name, plan in large.items() if plan.scanned} == {}
    grown = {name: str(large[name]) for name in small if large[name].pages > 1.5 * small[name].pages + ALLOWED}
    assert grown == {}


def test_what_is_found_is_what_was_put_there(clone: Clone) -> None:
    found = measured(clone(), SMALL, analyzed=True)
    rows = {name: plan.root["Actual Rows"] for name, plan in found.items() if "count" not in name}
    assert set(rows.values()) == {60, 10}
