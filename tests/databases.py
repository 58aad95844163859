"""Databases for tests: one serves the next test too, once it is again as it was made; else there is a new one.

To copy a template and to drop the copy costs Postgres as much as most tests do, and its first statements cost as much
again. So a test's rows are taken away and the database stays, unless the test left anything else behind: a change of
the schema, a right, a statistic, a setting, a connection, a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from io import StringIO

import psycopg2
from sqlalchemy import make_url

from celeriac.store.invariants import INVARIANTS
from celeriac.testing.servers import Servers, today

#: How many tests a database serves: each that is put right leaves dead rows in Postgres' catalogue.
TESTS = 100

#: How long (seconds) connections that a test has closed may take to end.
ENDING = 0.2

#: What a test may change besides rows: equal before and after, or the database is dropped. A row of the catalogue that
#: was written since has another xmin; to truncate a table writes its own row, of which the rest is compared.
LAYOUT = """
WITH written AS (
    SELECT 1 AS place, xmin FROM pg_attribute WHERE attrelid >= 16384
    UNION ALL SELECT 2, xmin FROM pg_proc WHERE oid >= 16384
    UNION ALL SELECT 3, xmin FROM pg_constraint WHERE oid >= 16384
    UNION ALL SELECT 4, xmin FROM pg_trigger WHERE oid >= 16384
    UNION ALL SELECT 5, xmin FROM pg_index WHERE indexrelid >= 16384
    UNION ALL SELECT 6, xmin FROM pg_rewrite WHERE oid >= 16384
    UNION ALL SELECT 7, xmin FROM pg_attrdef
    UNION ALL SELECT 8, xmin FROM pg_namespace
    UNION ALL SELECT 9, xmin FROM pg_type WHERE oid >= 16384
    UNION ALL SELECT 10, xmin FROM pg_default_acl
    UNION ALL SELECT 11, xmin FROM pg_policy
    UNION ALL SELECT 12, xmin FROM pg_extension
    UNION ALL SELECT 13, xmin FROM pg_event_trigger
    UNION ALL SELECT 14, xmin FROM pg_statistic_ext
    UNION ALL SELECT 15, xmin FROM pg_statistic WHERE starelid >= 16384
    UNION ALL SELECT 17, xmin FROM pg_sequence
    UNION ALL SELECT 18, xmin FROM pg_inherits
    UNION ALL SELECT 19, xmin FROM pg_description WHERE objoid >= 16384
    UNION ALL SELECT 20, xmin FROM pg_largeobject_metadata
    UNION ALL SELECT 21, xmin FROM pg_publication
    UNION ALL SELECT 22, xmin FROM pg_subscription
    UNION ALL SELECT 16, s.xmin FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
    WHERE d.datname = current_database()
), clean AS (
    SELECT row(oid, relname, relacl, reloptions, relowner, relpersistence, relhastriggers, relhasrules)::text AS said
    FROM pg_class WHERE oid >= 16384
    UNION ALL SELECT row(oid, relfilenode, pg_relation_size(oid))::text FROM pg_class WHERE relkind = 'm'
    UNION ALL SELECT row(oid, reltuples)::text FROM pg_class WHERE oid >= 16384 AND relkind = 'p'
    UNION ALL SELECT row(datacl, datconnlimit, datallowconn, datdba)::text
    FROM pg_database WHERE datname = current_database()
    UNION ALL SELECT gid FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL SELECT slot_name FROM pg_replication_slots WHERE database = current_database()
)
SELECT place, count(*), sum(CAST(CAST(xmin AS text) AS bigint)) FROM written GROUP BY place
UNION ALL SELECT 0, count(*), sum(CAST(hashtext(said) AS bigint)) FROM clean ORDER BY 1
"""

#: Connections besides the one that asks.
OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

#: Tables that hold anything, or did, or of which the planner believes so.
USED = """
SELECT CAST(oid AS regclass)::text FROM pg_class
WHERE oid >= 16384 AND relkind = 'r' AND (pg_relation_size(oid) > 0 OR reltuples >= 0)
"""

SEQUENCES = "SELECT format('%I.%I', schemaname, sequencename), start_value, last_value FROM pg_sequences"


#: How the names of the threads begin that make databases.
OURS = "databases"


def running() -> set[threading.Thread]:
    """Return the process' threads, but those that make databases."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith(OURS)}


class Clean:
    """A database and the connection that puts it right: a superuser's, as triggers are off then."""

    def __init__(self, servers: Servers, template: str) -> None:
        self.life = ExitStack()
        self.url = self.life.enter_context(servers.cloned(template))
        self.day = today()
        self.tests = 0
        self._connect()
        self.seeds = {table: self._rows(table) for (table,) in self._ask(USED)}
        sequences = self._ask(SEQUENCES)
        self.sequences = "SELECT " + ", ".join(
            f"setval('{name}', {start if last is None else last}, {str(last is not None).lower()})"
            for name, start, last in sequences
        )
        self.layout = self._ask(LAYOUT)
        self.threads = set[threading.Thread]()

    def _connect(self) -> None:
        address = make_url(self.url).set(drivername="postgresql").render_as_string(hide_password=False)
        connection = psycopg2.connect(address, application_name="tests")
        self.life.callback(connection.close)
        connection.autocommit = True
        self.cursor = connection.cursor()

    def _ask(self, statement: str) -> list[tuple[object, ...]]:
        self.cursor.execute(statement)
        return self.cursor.fetchall()

    def _rows(self, table: object) -> str:
        content = StringIO()
        self.cursor.copy_expert(f"COPY {table} TO STDOUT", content)
        return content.getvalue()

    def begin(self) -> None:
        """Remember what the process has now: what a test leaves besides may come back to its database."""
        self.threads = running()

    def broken(self) -> list[tuple[object, ...]]:
        """Return the rows that break an invariant."""
        try:
            self._ask("SELECT 1")
        except psycopg2.Error:  # the test has ended every connection
            self._connect()
        self.cursor.execute("SET enable_nestloop = off")  # a test's statistics may tell of empty tables
        found = [row for invariant in INVARIANTS for row in self._ask(invariant)]
        self.cursor.execute("RESET enable_nestloop")
        return found

    def put_right(self) -> bool:
        """Take the test's rows away; return whether the database is as it was made."""
        self.tests += 1
        if self.tests >= TESTS or self.day != today() or self._has_threads():
            return False
        try:
            if self._is_used() or self._ask(LAYOUT) != self.layout:
                return False
            self.cursor.execute("SET session_replication_role = replica")
            changed = [table for table, rows in self.seeds.items() if self._rows(table) != rows]
            if used := [str(table) for (table,) in self._ask(USED) if table not in self.seeds or table in changed]:
                self.cursor.execute(f"TRUNCATE {', '.join(used)}")  # by itself it refuses what a seed refers to
            for table in changed:
                self.cursor.copy_expert(f"COPY {table} FROM STDIN", StringIO(self.seeds[table]))
            self.cursor.execute(self.sequences)
            # What this connection has done is told now, and not in the middle of the next test.
            self.cursor.execute("SELECT pg_stat_force_next_flush()")
            self.cursor.execute("SELECT pg_stat_reset()")
        except psycopg2.Error:
            return False
        return True

    def _has_threads(self) -> bool:
        return not running() <= self.threads

    def _is_used(self) -> bool:
        """Whether somebody is still connected."""
        until = time.monotonic() + ENDING
        while self._ask(OTHERS) != [(0,)]:
            if time.monotonic() > until:
                return True
            time.sleep(0.002)
        return False


class Stock:
    """Databases of a template for one test after the other. A further one is made, and a spoilt one dropped, beside the
    tests: Postgres waits a tenth of a second at each end, for what is still connected.
    """

    def __init__(self, servers: Servers, template: str) -> None:
        self.servers, self.template = servers, template
        self.threads = ThreadPoolExecutor(2, thread_name_prefix=OURS)
        self.kept: list[Clean] = []
        self.spare = self._make()

    def _make(self) -> Future[Clean]:
        return self.threads.submit(Clean, self.servers, self.template)

    @contextmanager
    def taken(self) -> Iterator[Clean]:
        """Yield a database as it was made, for one test."""
        clean = self._fresh()
        clean.begin()
        is_right = False
        try:
            yield clean
            is_right = clean.put_right()
        finally:
            if is_right:
                self.kept.append(clean)
            else:
                self.threads.submit(clean.life.close)

    def _fresh(self) -> Clean:
        while self.kept:
            if (clean := self.kept.pop()).day == today():
                return clean
            self.threads.submit(clean.life.close)
        clean, self.spare = self.spare.result(), self._make()
        if clean.day == today():
            return clean
        self.threads.submit(clean.life.close)
        return Clean(self.servers, self.template)

    def close(self) -> None:
        for clean in (*self.kept, self.spare.result()):
            clean.life.close()
        self.threads.shutdown()
