"""Logins of the least-privilege Postgres roles, for tests that import `login`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac, Settings
from celeriac.store.connections import Database
from celeriac.store.grants import grant
from tests.conftest import Servers

PREFIX = f"celeriac_test_{os.getpid()}"

Login = Callable[[str], Celeriac]


@pytest.fixture
def login(app: Celeriac, servers: Servers, database_url: str, redis_url: str) -> Iterator[Login]:
    """`login("worker")`: an app on a login of its own that is a member of that role, of which `sync` is known."""

    @app.task(role="sync", prompt=False, shared=False, unique_by="store_id")
    def sync(store_id: int) -> None: ...

    app.register_roles()
    with app.database.transaction() as connection:
        grant(connection, PREFIX)
    made: list[Celeriac] = []

    def of(part: str) -> Celeriac:
        servers.execute(f"CREATE ROLE {PREFIX}_login_{part} LOGIN PASSWORD 'secret' IN ROLE {PREFIX}_{part}")
        url = make_url(database_url).set(username=f"{PREFIX}_login_{part}", password="secret")
        settings = Settings(database_url=url.render_as_string(hide_password=False), redis_url=redis_url)
        made.append(Celeriac(part, settings=settings, set_as_current=False))
        return made[-1]

    yield of
    for one in made:
        one.publisher.close()
        one.database.dispose()
    with app.database.engine.begin() as connection:
        for role in connection.execute(
            text("SELECT rolname FROM pg_roles WHERE rolname LIKE :p"), {"p": f"{PREFIX}_%"}
        ):
            connection.exec_driver_sql(f"DROP OWNED BY {role.rolname}")
            connection.exec_driver_sql(f"DROP ROLE {role.rolname}")


def denied(database: Database, statement: str) -> str:
    with pytest.raises(DBAPIError) as error, database.transaction() as connection:
        connection.exec_driver_sql(statement)
    return str(error.value.orig.pgcode)
