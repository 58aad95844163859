"""The pytest plugin. Every run of pytest imports this module: what it needs is imported where a fixture is asked for.

It stands beside the package, as importing a module of that imports Celery and SQLAlchemy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from celeriac import Celeriac
    from celeriac.testing.servers import Servers


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("celeriac_app", "the app that the fixture celeriac_app is, as `celery -A` names it")


@pytest.fixture(scope="session")
def celeriac_servers() -> Iterator[Servers]:
    """Postgres and Redis: of DATABASE_URL and REDIS_URL, embedded ones (the extra `local`) for what is not set."""
    from celeriac.testing.servers import servers

    with servers() as found:
        yield found


@pytest.fixture(scope="session")
def celeriac_tested(pytestconfig: pytest.Config) -> Celeriac | None:
    """The app of the option `celeriac_app`, its tasks imported. None: each test has its own."""
    from celeriac.cli.group import find_app

    named = pytestconfig.getini("celeriac_app")
    return find_app(named) if named else None


@pytest.fixture(scope="session")
def celeriac_schema(celeriac_tested: Celeriac | None) -> Callable[[Engine], Any]:
    """What makes the tables of every test's database, once; migrates, and may be overridden to do more."""
    from celeriac.store.migrate import migrate

    return lambda engine: migrate(engine, celeriac_tested and celeriac_tested.migrations)


@pytest.fixture(scope="session")
def celeriac_template(celeriac_servers: Servers, celeriac_schema: Callable[[Engine], Any]) -> Iterator[str]:
    """The name of the database that those of tests are copies of."""
    with celeriac_servers.template(celeriac_schema) as name:
        yield name


@pytest.fixture
def celeriac_database_url(celeriac_servers: Servers, celeriac_template: str) -> Iterator[str]:
    """A database of the test's own."""
    with celeriac_servers.cloned(celeriac_template) as url:
        yield url


@pytest.fixture
def celeriac_app(
    celeriac_tested: Celeriac | None, celeriac_servers: Servers, celeriac_database_url: str
) -> Iterator[Celeriac]:
    """The app on the test's own database, and current; its calls are rows that wait (`celeriac.testing.mode`)."""
    from celeriac import Celeriac, testing
    from celeriac.testing.servers import pointed

    tested = celeriac_tested or Celeriac("tests", set_as_current=False)
    with (
        celeriac_servers.prefix() as prefix,
        pointed(tested, celeriac_database_url, celeriac_servers.redis_url, prefix) as app,
        testing.mode("manual", app=app),
    ):
        app.register_roles()
        yield app


@pytest.fixture
def celeriac_worker(celeriac_app: Celeriac) -> Iterator[Any]:
    """A worker of the app in a thread; calls go to it."""
    from celery.contrib.testing.worker import start_worker

    from celeriac import testing

    with testing.mode("worker", app=celeriac_app), start_worker(celeriac_app, perform_ping_check=False) as worker:
        yield worker
