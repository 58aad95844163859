"""Bring a database to the current schema: the engine's branch, then the application's.

Alembic is imported where it is used: every process imports this module, few need Alembic,
and it is a tenth of their start.
"""

from __future__ import annotations

import ast
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from celeriac.errors import ConfigurationError
from celeriac.store import mend
from celeriac.store.migrations import ENGINE_VERSIONS
from celeriac.store.patience import SETTLED_IN
from celeriac.store.routines.apply import replace_stale

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

#: The oldest major version that `make matrix` runs the engine's tests on.
OLDEST_POSTGRES = 15

#: The engine's own schema, which has all its tables and functions.
SCHEMA = "celeriac"


@dataclass(frozen=True, slots=True)
class Branch:
    """A folder of revisions, and the table that says which of them a database has."""

    versions: Path
    table: str
    schema: str | None = None


#: The engine's revisions have a version table of their own, so that an application keeps its Alembic as it is.
ENGINE = Branch(ENGINE_VERSIONS, "version", SCHEMA)
APPLICATION_TABLE = "alembic_version"


#: A revision's statements under this name run after the transaction, one by one; they do not block others.
AFTERWARDS = "afterwards"

# The lock is tried, not awaited, because a waiting statement keeps its snapshot, and an index that is built
# concurrently waits for that.
LOCK = text("SELECT pg_try_advisory_xact_lock(hashtextextended('celeriac migrate', 0))")

#: Seconds between two attempts.
TRIES = 0.1

#: Set for the transaction that holds the lock and is idle while statements run on other connections.
PATIENT = "SET LOCAL idle_in_transaction_session_timeout = 0"

LEAVE = text("INSERT INTO celeriac.afterwards (revision, statements) VALUES (:revision, :statements)")

LEFT = text("SELECT revision, statements FROM celeriac.afterwards ORDER BY id LIMIT 1")

DONE = text("DELETE FROM celeriac.afterwards WHERE revision = :revision")

#: For how many days ahead history has partitions.
DAYS_AHEAD = 7

ADD_DAYS = """
SELECT count(*) FILTER (WHERE celeriac.add_history_day(CAST(now() AT TIME ZONE 'UTC' AS date) + n))
FROM generate_series(0, :days) AS n
"""

#: Notes the first id of today, so that an id tells its task's day.
BEGIN_DAY = text("SELECT celeriac.begin_day()")


def configuration(versions: Path) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(ENGINE_VERSIONS.parent))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", str(versions))
    return config


def migrate(
    engine: Engine,
    application: Path | None = None,
    *,
    lock_timeout: float = 5.0,
    statement_timeout: float = 600.0,
) -> None:
    """Apply what is missing; safe to run from several places at once. Timeouts in seconds.

    The engine's part is committed before the application's begins, which may take long: meanwhile the engine's tables
    are not locked. A revision's `afterwards` run after that, without a transaction; if they are killed, the next
    migrate begins them again. Parts of the engine's tables that somebody dropped are made again. A newer schema on
    which this code runs stays as it is. Raises ConfigurationError for one on which it does not, and for a database that
    cannot hold every text or takes no writes.
    """
    timeouts = (lock_timeout, statement_timeout)
    with engine.begin() as turn:
        # Waiting for another migration may take as long as that one does; the timeouts apply only after it.
        _take_turn(turn)
        turn.exec_driver_sql(PATIENT)
        with engine.begin() as connection:
            refuse_narrow(connection)
            new = unapplied(connection, application)
            is_ours = not is_ahead(connection)
            if is_ours:
                connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
                _upgrade(connection, ENGINE, new, timeouts)
                mend.tables(connection)
                apply_routines(connection)
        if application is not None:
            with engine.begin() as connection:
                _upgrade(connection, Branch(application, APPLICATION_TABLE), new, timeouts)
        _do_afterwards(engine)
        if is_ours:
            mend.indexes(engine)


def _upgrade(connection: Connection, branch: Branch, new: set[str], timeouts: tuple[float, float]) -> None:
    from alembic.command import upgrade

    config = configuration(branch.versions)
    config.attributes.update(connection=connection, branch=branch, timeouts=timeouts)
    upgrade(config, "head")
    _leave(connection, branch, new)


def _take_turn(connection: Connection) -> None:
    while not connection.execute(LOCK).scalar_one():
        time.sleep(TRIES)


def _leave(connection: Connection, branch: Branch, new: set[str]) -> None:
    from alembic.script import ScriptDirectory

    revisions = ScriptDirectory.from_config(configuration(branch.versions)).walk_revisions()
    for revision in reversed([r for r in revisions if r.revision in new and hasattr(r.module, AFTERWARDS)]):
        statements = list(getattr(revision.module, AFTERWARDS))
        connection.execute(LEAVE, {"revision": revision.revision, "statements": statements})


def _do_afterwards(engine: Engine) -> None:
    """Run the revisions' statements for afterwards. Others' transactions may delay these statements; they delay
    nobody.
    """
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while left := connection.execute(LEFT).one_or_none():
            for statement in left.statements:
                connection.exec_driver_sql(statement.replace("%", "%%"))
            connection.execute(DONE, {"revision": left.revision})


def apply_routines(connection: Connection) -> None:
    """Bring functions, views and triggers to this code's, and make history's partitions for the next days."""
    replace_stale(connection)
    connection.execute(text(ADD_DAYS), {"days": DAYS_AHEAD})
    connection.execute(BEGIN_DAY)


def unapplied(connection: Connection, application: Path | None = None) -> set[str]:
    """Return the revisions the code has and the database lacks.

    Raises ConfigurationError if the database has some the code lacks, unless the engine's say that this code runs on
    them; if it takes no writes, or its Postgres is too old.
    """
    refuse_old_postgres(connection)
    refuse_read_only(connection)
    refuse_single_statements(connection)
    standing = standing_of(connection, application)
    if standing.newer:
        raise ConfigurationError(standing.newer)
    return standing.lacks


@dataclass(frozen=True, slots=True)
class Standing:
    """A database's schema beside this code's: the revisions it lacks, and why it is too new, empty if it is not."""

    lacks: set[str]
    newer: str = ""


def standing_of(connection: Connection, application: Path | None = None) -> Standing:
    """Compare the version tables with the code's revisions; nothing is written."""
    branches = [_standing(connection, branch) for branch in _branches(application)]
    return Standing(set().union(*(one.lacks for one in branches)), "; ".join(filter(None, (b.newer for b in branches))))


def refuse_old_postgres(connection: Connection) -> None:
    version = connection.dialect.server_version_info or (0,)
    if int(version[0]) < OLDEST_POSTGRES:
        raise ConfigurationError(
            f"Postgres {'.'.join(map(str, version))} is too old: Celeriac needs {OLDEST_POSTGRES} or later; "
            "DATABASE_URL has to name such a server"
        )


WRITES = text("""
SELECT current_setting('default_transaction_read_only')::boolean AS is_read_only, pg_is_in_recovery() AS is_standby,
    quote_ident(current_database()) AS database, quote_ident(session_user) AS login,
    (SELECT source FROM pg_settings WHERE name = 'default_transaction_read_only') AS source
""")

#: The statement that resets a default of read-only transactions, by its source in `pg_settings`.
RESET = {
    "database": "ALTER DATABASE {database} RESET default_transaction_read_only",
    "user": "ALTER ROLE {login} RESET default_transaction_read_only",
    "database user": "ALTER ROLE {login} IN DATABASE {database} RESET default_transaction_read_only",
}


@dataclass(frozen=True, slots=True)
class ReadOnly:
    """Why the database takes no writes, and what lets it."""

    sentence: str
    cure: str


def read_only(connection: Connection) -> ReadOnly | None:
    """Return why the database takes no writes from this login; None if it does."""
    row = connection.execute(WRITES).one()
    if row.is_standby:
        return ReadOnly(
            "DATABASE_URL names a standby, which takes no writes",
            "name its primary, or all of them with target_session_attrs=read-write",
        )
    if not row.is_read_only:
        return None
    reset = RESET.get(row.source, "").format(database=row.database, login=row.login)
    return ReadOnly(
        f"default_transaction_read_only is on by the {row.source}, so nothing can run",
        f"`BEGIN READ WRITE; {reset}; COMMIT`" if reset else "turn it off where that is set",
    )


def refuse_read_only(connection: Connection) -> None:
    if (why := read_only(connection)) is not None:
        raise ConfigurationError(f"{why.sentence}: {why.cure}")


def refuse_single_statements(connection: Connection) -> None:
    """Raise ConfigurationError behind a pooler that allows no transactions: it hangs up on whoever begins one, which
    looks like a Postgres that is away. Elsewhere it asks nothing.
    """
    raw: Any = connection.connection.dbapi_connection
    if SETTLED_IN in connection.info or not raw.autocommit:
        return
    try:
        connection.exec_driver_sql("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT 1")
        connection.exec_driver_sql("ROLLBACK")
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
        connection.rollback()
        connection.exec_driver_sql("SELECT 1")  # raises if it is Postgres that has gone
        raise ConfigurationError(
            "DATABASE_URL names a pooler that allows no transactions: set `pool_mode = transaction` in PgBouncer"
        ) from None


ENCODING = text("SELECT quote_ident(current_database()), current_setting('server_encoding')")


def refuse_narrow(connection: Connection) -> None:
    """Raise ConfigurationError if the database's encoding lacks characters that arguments and results may have."""
    name, encoding = connection.execute(ENCODING).one()
    if encoding != "UTF8":
        raise ConfigurationError(
            f"the database {name} has the encoding {encoding}, which cannot hold every text: make another with "
            "`CREATE DATABASE name ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0` and name it in DATABASE_URL"
        )


def _branches(application: Path | None) -> list[Branch]:
    return [ENGINE, *([Branch(application, APPLICATION_TABLE)] if application else [])]


@lru_cache(maxsize=8)
def _script(versions: Path, _changed: int) -> ScriptDirectory:
    """Read the folder, again only if its list of files has changed: `_changed` is the time of its last change."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(configuration(versions))


@lru_cache(maxsize=8)
def _heads(versions: Path, _changed: int) -> frozenset[str] | None:
    """Return the last revisions of a folder, read without Alembic; None if a file does not have them as literals."""
    said: dict[str, list[object]] = {"revision": [], "down_revision": []}
    for path in versions.glob("*.py"):
        for statement in ast.parse(path.read_text()).body:
            names = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            for name in names:
                if isinstance(name, ast.Name) and name.id in said:
                    try:
                        value = ast.literal_eval(statement.value)  # type: ignore[attr-defined]
                    except ValueError:
                        return None
                    said[name.id] += value if isinstance(value, list | tuple) else [value]
    return frozenset(str(name) for name in said["revision"] if name not in said["down_revision"])


def _reached(connection: Connection, branch: Branch) -> frozenset[str]:
    """Return the revisions that a database has reached, by its version table."""
    table = f"{branch.schema}.{branch.table}" if branch.schema else branch.table
    if connection.execute(text("SELECT to_regclass(:table)"), {"table": table}).scalar_one() is None:
        return frozenset()
    return frozenset(connection.execute(text(f"SELECT version_num FROM {table}")).scalars())


# A schema from before this column existed has no mark.
RUNS_FROM = text("SELECT to_jsonb(v) ->> 'runs_from' FROM celeriac.version v")


def is_ahead(connection: Connection) -> bool:
    """Return whether a later release has migrated the engine's schema, and this code runs on it."""
    changed = ENGINE_VERSIONS.stat().st_mtime_ns
    if not (reached := _reached(connection, ENGINE)) or reached == _heads(ENGINE_VERSIONS, changed):
        return False
    known = {r.revision for r in _script(ENGINE_VERSIONS, changed).walk_revisions()}
    return not reached <= known and set(connection.execute(RUNS_FROM).scalars()) <= known


def _standing(connection: Connection, branch: Branch) -> Standing:
    """Alembic is used only if the database is not current: importing it is a third of a worker's start."""
    changed = branch.versions.stat().st_mtime_ns
    heads = _heads(branch.versions, changed)
    reached = _reached(connection, branch)
    if heads and reached == heads:
        return Standing(set())
    script = _script(branch.versions, changed)
    known = {r.revision for r in script.walk_revisions()}
    if unknown := reached - known:
        if branch is ENGINE and is_ahead(connection):
            return Standing(set())
        table = f"{branch.schema}.{branch.table}" if branch.schema else branch.table
        return Standing(
            set(),
            f"the database is newer than this code, which does not know {', '.join(sorted(unknown))} of its table "
            f"{table}: run the release that migrated it, or a later one",
        )
    return Standing(known - {r.revision for head in reached for r in script.iterate_revisions(head, "base")})
