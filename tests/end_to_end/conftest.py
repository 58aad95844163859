from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from celery import Celery
from sqlalchemy import create_engine

from celeriac import Celeriac, Settings, local
from celeriac.roles import registry
from celeriac.store.migrate import migrate
from tests import processes
from tests.end_to_end.shop import RAN
from tests.processes import Rows, Running

if TYPE_CHECKING:
    from tests.end_to_end.staging import Staged

QUICK = {
    "HEARTBEAT_INTERVAL_MS": "300",
    "POLL_INTERVAL_MS": "500",
    "CELERIAC_TICKET_GRACE_MS": "500",
    "CELERIAC_SWEEP_INTERVAL_MS": "500",
    "CELERIAC_TIME_LIMIT_GRACE_MS": "500",
    "CELERIAC_DRAIN_GRACE_MS": "1500",
}


@contextmanager
def shop_server(folder: Path) -> Iterator[local.PostgresServer]:
    """A server of one's own, to be stopped, frozen or killed: with the engine's schema and the shop's table."""
    server = local.PostgresServer(folder / "postgres")
    server.start()
    try:
        engine = create_engine(server.url)
        migrate(engine)
        with engine.begin() as connection:
            connection.exec_driver_sql(RAN)
        engine.dispose()
        yield server
    finally:
        server.stop()


def declare_shop(app: Celeriac) -> None:
    """Its roles, for an app that knows the shop's tasks by name only."""
    from tests.end_to_end.shop import app as shop

    with app.database.statement() as connection:
        registry.register(connection, [declared.row() for declared in shop.roles.all()], 0)


@pytest.fixture
def rows(database_url: str) -> Iterator[Rows]:
    rows = Rows(database_url)
    rows(RAN)
    yield rows
    rows.close()


@pytest.fixture
def shop(database_url: str, redis_url: str, rows: Rows) -> Iterator[ModuleType]:
    """The shop's module, its app on this test's servers."""
    with shop_on(database_url, redis_url) as module:
        yield module


@contextmanager
def shop_on(database_url: str, redis_url: str) -> Iterator[ModuleType]:
    module = importlib.import_module("tests.end_to_end.shop")
    app = module.app
    for name in ("database", "publisher", "enqueuer", "by_name", "limited", "tally"):
        app.__dict__.pop(name, None)
    app.settings = Settings.from_environ({**QUICK, "DATABASE_URL": database_url, "REDIS_URL": redis_url})
    app.conf.broker_url = redis_url
    app.register_roles()
    yield module
    app.publisher.close()
    app.database.dispose()


@contextmanager
def beside(shop: ModuleType, app: Celeriac) -> Iterator[Celeriac]:
    """Another module's app on the servers of the shop's."""
    for name in ("database", "publisher", "enqueuer", "by_name", "clocks", "limited", "tally"):
        app.__dict__.pop(name, None)
    app.settings, app.conf.broker_url = shop.app.settings, shop.app.conf.broker_url
    app.register_roles()
    yield app
    app.publisher.close()
    app.database.dispose()


@pytest.fixture
def worker(database_url: str, redis_url: str, rows: Rows, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts workers of the shop; they end with the test."""
    with ExitStack() as stack:

        def start(*arguments: str, module: str = "tests.end_to_end.shop", **environ: str) -> Running:
            log = tmp_path / f"{module}.log"
            started: AbstractContextManager[Running] = processes.worker(
                module, database_url, redis_url, log, *arguments, environ={**QUICK, **environ}
            )
            return stack.enter_context(started)

        yield start


@pytest.fixture
def other(redis_url: str) -> Iterator[Celery]:
    """An app that knows the broker alone."""
    app = Celery("stock", broker=redis_url, set_as_current=False)
    yield app
    app.close()


@pytest.fixture(scope="module")
def settings_of_postgres() -> dict[str, str]:
    """Of a stage for incidents; a module may have others."""
    return {}


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory, settings_of_postgres: dict[str, str]) -> Iterator[Staged]:
    """A stage for incidents, one a module."""
    from tests.end_to_end.staging import stage

    with stage(tmp_path_factory.mktemp("stage"), settings=settings_of_postgres) as made:
        yield made


@pytest.fixture
def well(staged: Staged) -> Iterator[None]:
    """Before each incident, so that what is named comes of it alone."""
    from tests.end_to_end.staging import clean

    staged.is_well()
    yield
    clean(staged)
