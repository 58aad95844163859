"""Real servers for every test: a database cloned from a migrated template, a Redis database of its own.

`DATABASE_URL` and `REDIS_URL` (both or none) name servers to use; the tests create and drop databases there and
empty the Redis database. Without them the embedded stack runs in a temporary folder.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery
from sqlalchemy import create_engine, make_url, text
from xdist.scheduler import LoadScopeScheduling

from celeriac import Celeriac, Settings, local
from celeriac.store.connections import Database
from celeriac.store.migrate import migrate
from tests.processes import Rows

ROOT = Path(__file__).parent.parent
APPLICATION = ROOT / "migrations" / "versions"
_number = itertools.count()


# Started in the background of a shell, everything from here on would be deaf to the Ctrl-C that tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="the proof under load at full size (tests/faults)")


#: Folders of tests that take long, in this order before all others: none is left alone at the end of a run.
LONG = ("deploy", "systems", "faults", "end_to_end", "outside", "demo", "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        return LONG.index(folder) if folder in LONG else len(LONG)

    items.sort(key=place)


class Together(LoadScopeScheduling):
    """Which tests stay in one process, as what the first one starts serves them all; the rest go wherever is room."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        *_, folder, module = path.split("/")
        if folder == "api":
            return folder
        return path if folder in LONG or module == "test_races.py" else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    config.option.loadscopereorder = False
    return Together(config, log)


#: The tests' own Postgres need not outlive the machine. Killed processes lose nothing by it, and a test's own database
#: comes and goes in a fifth of the time.
OUTLIVES_NO_POWER_CUT = ("fsync", "full_page_writes")


#: Bytes for three servers of the tests and what the largest of them put there.
PLENTY = 8 * 2**30


class Servers:
    """`copying`: how Postgres makes a database from a template; by files is quickest where it need not sync them."""

    def __init__(self, database_url: str, redis_url: str, copying: str = "WAL_LOG") -> None:
        self.database_url, self.redis_url, self.copying = database_url, redis_url, copying
        self._engine = create_engine(database_url, isolation_level="AUTOCOMMIT", pool_pre_ping=True)

    def execute(self, statement: str) -> None:
        with self._engine.connect() as connection:
            connection.execute(text(statement))

    def close(self) -> None:
        self._engine.dispose()

    def database(self, name: str) -> str:
        return make_url(self.database_url).set(database=name).render_as_string(hide_password=False)

    @contextmanager
    def cloned(self, template: str = "template1") -> Iterator[str]:
        """The address of a new database, a copy of that one, which goes afterwards."""
        name = f"celeriac_test_{os.getpid()}_{next(_number)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY {self.copying}")
        try:
            yield self.database(name)
        finally:
            self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _memory() -> str | None:
    """A folder in memory, where there is plenty of it: a database made there costs a tenth."""
    folder = Path("/dev/shm")
    return str(folder) if folder.is_dir() and shutil.disk_usage(folder).free > PLENTY else None


def _own_redis_database(url: str) -> str:
    """Tests that run side by side empty each their own."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return make_url(url).set(database=str(number)).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    given = os.environ.get("DATABASE_URL"), os.environ.get("REDIS_URL")
    if given[0] and given[1]:
        servers = Servers(given[0], _own_redis_database(given[1]))
        yield servers
        servers.close()
        return
    with tempfile.TemporaryDirectory(prefix="celeriac-tests-", dir=_memory()) as folder:
        os.chmod(folder, 0o755)
        with local.join(Path(folder)) as stack:
            servers = Servers(stack.database_url, stack.redis_url, copying="FILE_COPY")
            for setting in OUTLIVES_NO_POWER_CUT:
                servers.execute(f"ALTER SYSTEM SET {setting} = off")
            servers.execute("SELECT pg_reload_conf()")
            yield servers
            servers.close()


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser. CI has one; elsewhere its tests are skipped where there is none."""
    from tasks.chromium import NoBrowser, find

    try:
        return find()
    except NoBrowser as missing:
        pytest.fail(str(missing)) if os.environ.get("CI") else pytest.skip(str(missing))


#: The tests' server is young, and a lease counts only time in which it was up.
UP_FOR_EVER = """
CREATE OR REPLACE FUNCTION celeriac.up_since() RETURNS timestamptz LANGUAGE sql STABLE
AS $$ SELECT CAST('-infinity' AS timestamptz) $$
"""


@pytest.fixture(scope="session")
def template(servers: Servers) -> Iterator[str]:
    name = f"celeriac_template_{os.getpid()}"
    servers.execute(f"CREATE DATABASE {name}")
    engine = create_engine(servers.database(name))
    migrate(engine, APPLICATION)
    with engine.begin() as connection:
        connection.execute(text(UP_FOR_EVER))
    engine.dispose()
    yield name
    servers.execute(f"DROP DATABASE {name}")


class Stock:
    """Databases for tests: the next one is made, and the last one goes, while a test runs.

    Postgres waits a tenth of a second at each end, for what is still connected.
    """

    def __init__(self, servers: Servers, template: str) -> None:
        self.servers, self.template = servers, template
        self.threads = ThreadPoolExecutor(2, thread_name_prefix="databases")
        self.next = self.threads.submit(self._make)

    def _make(self) -> tuple[ExitStack, str]:
        life = ExitStack()
        return life, life.enter_context(self.servers.cloned(self.template))

    @contextmanager
    def taken(self) -> Iterator[str]:
        life, url = self.next.result()
        self.next = self.threads.submit(self._make)
        yield url
        self.threads.submit(life.close)

    def close(self) -> None:
        self.next.result()[0].close()
        self.threads.shutdown()


@pytest.fixture(scope="session")
def stock(servers: Servers, template: str) -> Iterator[Stock]:
    stock = Stock(servers, template)
    yield stock
    stock.close()


@pytest.fixture
def database_url(stock: Stock) -> Iterator[str]:
    with stock.taken() as url:
        yield url


@pytest.fixture
def redis_url(servers: Servers) -> str:
    client = redis.Redis.from_url(servers.redis_url)
    client.flushdb()
    client.close()
    return servers.redis_url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.dispose()


@pytest.fixture
def rows(database_url: str) -> Iterator[Rows]:
    rows = Rows(database_url)
    yield rows
    rows.close()


@pytest.fixture
def plain(redis_url: str) -> Iterator[Celery]:
    """A stock Celery app on the same Redis."""
    app = Celery("plain", broker=redis_url, set_as_current=False)
    yield app
    app.close()


@pytest.fixture
def app(database_url: str, redis_url: str) -> Iterator[Celeriac]:
    """An app of its own on the test's servers; declare tasks on it."""
    app = Celeriac("test", settings=Settings(database_url=database_url, redis_url=redis_url), set_as_current=False)
    yield app
    app.publisher.close()
    app.database.dispose()
