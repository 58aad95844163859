"""Every statement of the verbs and the insights is SQL that Postgres takes, on the tables as they are migrated."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from sqlalchemy import TextClause, text
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2

from celeriac.insights.tasks.pages import ENDS, IDS, IDS_OF_WALK, PAGES
from celeriac.repair import ring
from celeriac.seam import results
from celeriac.store import migrate
from celeriac.store.connections import Database
from celeriac.store.drivers import by_number
from celeriac.store.plans import BY_LOOKUPS, IN_ORDER, KEPT_PLAN
from celeriac.store.prepared import for_cursor

PACKAGES = (
    "alerts", "canvas", "enqueue", "dispatch", "metrics", "run", "settle", "roles", "repair", "schedules", "operate",
    "insights", "store", "doctor",
)  # fmt: skip

#: Scripts of Alembic's, and what they apply.
APART = {"store.migrations", "store.routines"}


def modules(package: str) -> Iterator[ModuleType]:
    """The modules of a package and of the packages in it."""
    for found in pkgutil.iter_modules(importlib.import_module(f"celeriac.{package}").__path__):
        name = f"{package}.{found.name}"
        if found.ispkg and name not in APART:
            yield from modules(name)
        elif not found.ispkg and found.name != "__main__":
            yield importlib.import_module(f"celeriac.{name}")


def short(module: ModuleType) -> str:
    """Without the folder between, if there is one: the name of a module of insights tells enough."""
    _, package, *_, name = module.__name__.split(".")
    return f"celeriac.{package}.{name}"


MODULES = [results, *(module for package in PACKAGES for module in modules(package))]


STATEMENTS = {
    f"{short(module)}.{name}": statement
    for module in MODULES
    for name, statement in vars(module).items()
    if isinstance(statement, TextClause)
}
STATEMENTS |= {f"page of {part}": page for part, page in PAGES.items()}
STATEMENTS |= {
    "move": text(ring.MOVE.format(seg=0, page=0, end=1)),
    "add days": text(migrate.ADD_DAYS),
}
STATEMENTS |= {f"ids of {part}": ids for part, ids in IDS.items()}
STATEMENTS |= {f"ids of the walk of {part}": ids for part, ids in IDS_OF_WALK.items()}
STATEMENTS |= {f"end of {part}": end for part, end in ENDS.items()}


def test_the_verbs_statements_are_found() -> None:
    assert len(STATEMENTS) > 30


def prepared(statement: TextClause) -> str:
    """Its parameters as $1, $2, …: what Postgres has to tell the types of by itself."""
    return str(statement.compile(dialect=PGDialect_psycopg2(paramstyle="numeric_dollar")))


def test_every_statement_can_be_prepared(database: Database) -> None:
    refused = {}
    for name, statement in STATEMENTS.items():
        try:
            with database.statement() as connection:
                connection.exec_driver_sql(f"PREPARE a_statement AS {prepared(statement)}")
                connection.exec_driver_sql("DEALLOCATE a_statement")
        except Exception as error:
            refused[name] = str(error)[:300]
    assert refused == {}


def test_what_enqueues_can_be_prepared_as_asyncpg_has_it(database: Database) -> None:
    """What is cast is sent as text there: of no parameter the type may be unknown."""
    ours = [STATEMENTS[name] for name in STATEMENTS if name.startswith(("celeriac.enqueue.i", "celeriac.enqueue.r"))]
    for statement, _ in map(by_number, map(for_cursor, ours)):
        with database.statement() as connection:
            connection.exec_driver_sql(f"PREPARE a_statement AS {statement.replace('%', '%%')}")
            connection.exec_driver_sql("DEALLOCATE a_statement")


def test_what_is_planned_by_look_ups_is_not_compiled(database: Database) -> None:
    """Up to Postgres 17 such plans may seem dear enough for it, and a look at a lock key took seconds (decision 16)."""
    functions = text("SELECT proname, proconfig FROM pg_proc WHERE 'enable_seqscan=off' = ANY (proconfig)")
    with database.statement() as connection:
        settings = {name: set(given) for name, given in connection.execute(functions)}
        assert settings
        assert [name for name, given in settings.items() if "jit=off" not in given] == []
    for planned in (BY_LOOKUPS, IN_ORDER, KEPT_PLAN):
        with database.transaction() as connection:
            connection.exec_driver_sql(planned)
            assert connection.exec_driver_sql("SHOW jit").scalar_one() == "off"
