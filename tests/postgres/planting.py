"""A process that meets each error of Postgres with a secret in its hands, and writes all it can of it:

`python -m tests.postgres.planting <database> <login without a connection left> <secret>`.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from sqlalchemy import Connection, make_url, text
from sqlalchemy.orm import Session

from celeriac.store.connections import Database
from celeriac.store.failures import is_passing, log_error
from celeriac.worker import logs

logger = logging.getLogger("celeriac.planting")

SLOW = "slow"

#: How long a statement may take; and one that is too slow, which another may not become because two processes run.
LONGEST, SHORT = "1s", "300ms"

#: What each says to Postgres, with the call as `:call` and its secret as `:secret`; whether it passes by itself.
SAID: dict[str, tuple[str, bool]] = {
    "locked table": ("INSERT INTO locked_table VALUES (1, CAST(:call AS jsonb))", True),
    "locked row": ("UPDATE locked_row SET call = CAST(:call AS jsonb)", True),
    SLOW: ("SELECT pg_sleep(60), :call", True),
    "check": ("INSERT INTO checked VALUES (1, CAST(:call AS jsonb))", False),
    "not null": ("INSERT INTO checked VALUES (NULL, CAST(:call AS jsonb))", False),
    "unique": ("INSERT INTO taken VALUES (:secret)", False),
    "no number": ("SELECT CAST(:secret AS int)", False),
    "no JSON": ("SELECT CAST(:call || 'x' AS jsonb)", False),
    "no character": (r"""SELECT CAST(left(:call, 45) || '\u0000"}' AS jsonb)""", False),
    "raised": ("INSERT INTO raising VALUES (1, CAST(:call AS jsonb))", False),
}  # fmt: skip


@contextmanager
def as_driver(database: Database) -> Iterator[Callable[[str, dict[str, str]], Any]]:
    """As an enqueue has it."""
    with database.cursor() as cursor:
        yield lambda said, values: cursor.execute(
            said.replace(":call", "%(call)s").replace(":secret", "%(secret)s"), values
        )


@contextmanager
def in_session(database: Database) -> Iterator[Connection]:
    with Session(database.engine) as session:
        yield session.connection()


def meet(name: str, passes: bool, act: Callable[[], Any]) -> None:
    try:
        act()
    except Exception as error:
        if is_passing(error) is not passes:
            raise AssertionError(name) from error
        print(f"{name}: {error}", repr(error), error.args)
        print(traceback.format_exc())
        logger.info("Beginning of %s", name)
        log_error(logger, error, "Failed at %s", name)
        logger.info("End of %s", name)
        if not passes:
            logger.exception("Logged by somebody else")
    else:
        raise AssertionError(f"{name}: no error")


def limited(url: str, statement: str) -> Database:
    """Return the database, where a statement may take so long, and wait for a lock a tenth of a second."""
    limits = {"options": f"-c lock_timeout=100ms -c statement_timeout={statement}"}
    return Database(make_url(url).update_query_dict(limits).render_as_string(hide_password=False))


def meet_all(url: str, secret: str) -> None:
    database, brief = limited(url, LONGEST), limited(url, SHORT)
    values = {"call": json.dumps({"user": "ann", "password": secret}), "secret": secret}
    for name, (said, passes) in SAID.items():
        asked = brief if name == SLOW else database
        for way in (asked.statement, asked.transaction, asked.reading):

            def act(way: Any = way, said: str = said) -> None:
                with way() as connection:
                    connection.execute(text(said), values)

            meet(f"{name}, {way.__name__}", passes, act)

        def by_driver(said: str = said, asked: Database = asked) -> None:
            with as_driver(asked) as execute:
                execute(said, values)

        meet(f"{name}, driver", passes, by_driver)
    with in_session(brief) as connection:
        meet("in a session", True, partial(connection.execute, text(SAID[SLOW][0]), values))


if __name__ == "__main__":
    if sys.argv[4] == "json":
        logs.configure()
    else:
        logging.basicConfig(level=logging.INFO)
    meet_all(sys.argv[1], sys.argv[3])
    full = Database(sys.argv[2])

    def connect() -> None:
        with full.statement() as connection:
            connection.execute(text("SELECT :secret"), {"secret": sys.argv[3]})

    meet("full", True, connect)
    with Database(sys.argv[1]).statement() as connection:
        connection.execute(text(SAID["check"][0]), {"call": json.dumps({"password": sys.argv[3]})})
