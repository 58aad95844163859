"""No error of Postgres brings what a call was made with into a log, in whatever format, or to whoever catches it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, create_engine, make_url, text

from tests.postgres.planting import SAID
from tests.processes import ROOT

SECRET = "kanarienvogel-4711-kanarienvogel"

TABLES = """
CREATE TABLE locked_table (id int, call jsonb);
CREATE TABLE locked_row (id int, call jsonb);
INSERT INTO locked_row VALUES (1, NULL);
CREATE TABLE checked (id int NOT NULL, call jsonb CHECK (call IS NULL));
CREATE TABLE taken (secret text PRIMARY KEY);
INSERT INTO taken VALUES ('kanarienvogel-4711-kanarienvogel');
CREATE TABLE raising (id int, call jsonb);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'it is refused' USING DETAIL = NEW.call, HINT = NEW.call;
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON raising FOR EACH ROW EXECUTE FUNCTION refuse();
"""


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def full(engine: Engine, database_url: str) -> Iterator[str]:
    """The address of a login that has no connection left."""
    login = f"full_{make_url(database_url).database}"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {login} LOGIN PASSWORD 'full' CONNECTION LIMIT 0"))
    yield make_url(database_url).set(username=login, password="full").render_as_string(hide_password=False)
    with engine.begin() as connection:
        connection.execute(text(f"DROP ROLE {login}"))


def test_no_process_writes_what_postgres_refused(engine: Engine, full: str, database_url: str) -> None:
    """In either format: the processes run side by side."""

    def ended(kind: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.postgres.planting", database_url, full, SECRET, kind]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)

    with engine.begin() as connection:
        connection.execute(text(TABLES))
    with engine.connect() as holder:
        holder.execute(text("LOCK TABLE locked_table; SELECT FROM locked_row FOR UPDATE"))
        with ThreadPoolExecutor() as threads:
            as_text, as_json = threads.map(ended, ("text", "json"))
    tells_nothing(as_text)
    tells_nothing(as_json)
    assert [json.loads(line) for line in between(as_json.stderr, "check, driver")]


def tells_nothing(ended: subprocess.CompletedProcess[str]) -> None:
    """A line for each error that passes, and nowhere a secret."""
    assert "IntegrityError: (psycopg2.errors.CheckViolation) new row" in ended.stderr[-1000:], ended.stderr[-3000:]
    written = ended.stdout + ended.stderr
    assert not [line for line in written.splitlines() if re.search("kanarienvogel|-4711-", line)]
    for name, (_, passes) in SAID.items():
        for way in ("statement", "transaction", "driver"):
            lines = between(ended.stderr, f"{name}, {way}")
            assert len(lines) == 1 or not passes
            assert ("Traceback" in "".join(lines)) is not passes
    assert len(between(ended.stderr, "full")) == 1


def between(log: str, name: str) -> list[str]:
    """The lines of the log about it."""
    lines = log.splitlines()
    (begin,) = [n for n, line in enumerate(lines) if f"Beginning of {name}" in line]
    (end,) = [n for n, line in enumerate(lines) if f"End of {name}" in line]
    return lines[begin + 1 : end]
