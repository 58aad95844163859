"""Servers for tests, databases on them, and apps that use them.

`DATABASE_URL` and `REDIS_URL` name existing servers. For each that is not set, an embedded server runs in a temporary
folder. On an existing server only the databases and keys made here are touched.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import redis
from celery import _state
from sqlalchemy import Engine, create_engine, make_url, text

from celeriac import local
from celeriac.repair import prune
from celeriac.seam.broker import BROKERS
from celeriac.settings import Settings
from celeriac.store.migrate import ADD_DAYS, BEGIN_DAY

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: Settings of Postgres that are off in tests. They protect from power cuts only: killed processes lose nothing without
#: them, and a test's database is made and dropped in a fifth of the time.
OUTLIVES_NO_POWER_CUT = ("fsync", "full_page_writes")

#: Free bytes that a folder in memory needs: for several processes' servers, and the data of the largest tests.
PLENTY = 8 * 2**30

#: Leases count only time in which the server was up, and a test's server is young; so tests take it to be up for ever.
UP_FOR_EVER = """
CREATE OR REPLACE FUNCTION celeriac.up_since() RETURNS timestamptz LANGUAGE sql STABLE
AS $$ SELECT CAST('-infinity' AS timestamptz) $$
"""

#: Days ahead for which a test's history has partitions, for tests that reach midnight. Each one slows planning.
DAYS_AHEAD = 1

FARTHER_DAYS = text("""
SELECT CAST(inhrelid AS regclass) AS part FROM pg_inherits, LATERAL to_date(
    substring(CAST(CAST(inhrelid AS regclass) AS text) FROM 'history_([0-9]{8})$'), 'YYYYMMDD') AS day
WHERE inhparent = CAST('celeriac.history' AS regclass)
    AND day > CAST(now() AT TIME ZONE 'UTC' AS date) + CAST(:days AS integer)
""")

FARTHER = text("DELETE FROM celeriac.days WHERE day > celeriac.today() + CAST(:days AS integer)")

OVER = text("SELECT day FROM celeriac.days WHERE day < celeriac.today()")

_number = itertools.count()


class Servers:
    """A pair of servers.

    `copying`: Postgres' strategy for copying a template; without fsync, copying files is quickest.
    """

    def __init__(self, database_url: str, redis_url: str, copying: str = "WAL_LOG") -> None:
        self.database_url, self.redis_url, self.copying = database_url, redis_url, copying
        self._engine = create_engine(
            database_url, isolation_level="AUTOCOMMIT", pool_pre_ping=True, hide_parameters=True
        )
        self.made: dict[str, date] = {}
        self._turn = threading.Lock()

    def execute(self, statement: str) -> None:
        with self._engine.connect() as connection:
            connection.execute(text(statement))

    def close(self) -> None:
        self._engine.dispose()

    def database(self, name: str) -> str:
        return make_url(self.database_url).set(database=name).render_as_string(hide_password=False)

    @contextmanager
    def cloned(self, template: str = "template1") -> Iterator[str]:
        """Yield the address of a new database, a copy of that template, which is dropped afterwards."""
        name = fresh_name("test")
        with self._turn:
            if self.made.get(template, today()) != today():
                self._renew(template)
            self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY {self.copying}")
        try:
            yield self.database(name)
        finally:
            self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    @contextmanager
    def template(self, make: Callable[[Engine], object]) -> Iterator[str]:
        """Yield the name of a database filled by `make`, to be cloned."""
        name = fresh_name("template")
        self.execute(f"CREATE DATABASE {name}")
        try:
            engine = create_engine(self.database(name), hide_parameters=True)
            make(engine)
            with engine.begin() as connection:
                connection.execute(text(UP_FOR_EVER))
                for part in connection.execute(FARTHER_DAYS, {"days": DAYS_AHEAD}).scalars().all():
                    connection.execute(text(f"DROP TABLE {part}"))
                connection.execute(FARTHER, {"days": DAYS_AHEAD})
            engine.dispose()
            self.made[name] = today()
            yield name
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _renew(self, template: str) -> None:
        """Renew a template that was made yesterday: its history lacks the partition of the day ahead."""
        self.made[template] = today()
        engine = create_engine(self.database(template), hide_parameters=True)
        with engine.begin() as connection:
            connection.execute(text(ADD_DAYS), {"days": DAYS_AHEAD})
            connection.execute(BEGIN_DAY)
            for day in connection.execute(OVER).scalars().all():
                connection.execute(prune.DROP_DAY, {"day": day})
        engine.dispose()

    @contextmanager
    def prefix(self) -> Iterator[str]:
        """Yield a prefix for keys in Redis, which are deleted afterwards."""
        prefix = f"{fresh_name('test')}:"
        yield prefix
        with redis.Redis.from_url(self.redis_url) as client:
            for key in client.scan_iter(f"{prefix}*"):
                client.delete(key)


def today() -> date:
    """Return today's date in UTC, which also divides history's days."""
    return datetime.now(UTC).date()


def fresh_name(what: str) -> str:
    """Return a name that is unique on its server, even if several machines test there."""
    return f"celeriac_{what}_{os.getpid()}_{next(_number)}_{os.urandom(3).hex()}"


@contextmanager
def servers() -> Iterator[Servers]:
    """Yield the servers of the environment, or embedded ones. Raises LocalStackError."""
    database_url, redis_url = os.environ.get("DATABASE_URL"), os.environ.get("REDIS_URL")
    if database_url and redis_url:
        pair = Servers(database_url, redis_url)
        yield pair
        pair.close()
        return
    with tempfile.TemporaryDirectory(prefix="celeriac-tests-", dir=memory()) as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - Postgres runs as another user
        with local.join(Path(folder), postgres=not database_url, redis=not redis_url) as stack:
            copying = "WAL_LOG" if database_url else "FILE_COPY"
            pair = Servers(database_url or stack.database_url, redis_url or stack.redis_url, copying)
            if not database_url:
                for setting in OUTLIVES_NO_POWER_CUT:
                    pair.execute(f"ALTER SYSTEM SET {setting} = off")
                pair.execute("SELECT pg_reload_conf()")
            yield pair
            pair.close()


def memory() -> str | None:
    """Return a folder in memory if enough is free: making a database there takes a tenth of the time."""
    folder = Path("/dev/shm")
    return str(folder) if folder.is_dir() and shutil.disk_usage(folder).free > PLENTY else None


@contextmanager
def pointed(app: Celeriac, database_url: str, redis_url: str, prefix: str = "") -> Iterator[Celeriac]:
    """Point the app to these servers, against all settings, configuration and environment, and restore it afterwards.

    Meanwhile it is the current app, its workers poll often and never back off, and tasks declared belong to it alone.
    """
    before, shared = app.settings, set(_state._on_app_finalizers)
    current, default = _state.get_current_app(), _state.default_app
    with without_brokers(), _configured(app, redis_url, prefix):
        disconnect(app)
        app.settings = for_tests(before, database_url, redis_url)
        app.set_current()
        try:
            yield app
        finally:
            disconnect(app)
            app.settings = before
            current.set_current()
            _state.set_default_app(default)
            _state._on_app_finalizers = shared


def for_tests(settings: Settings, database_url: str, redis_url: str) -> Settings:
    """Return these settings changed: a worker polls often and never backs off on a busy machine."""
    return replace(
        settings, database_url=database_url, redis_url=redis_url, redis_master=None, poll_interval=0.1,
        memory_backoff=1.0, cpu_backoff=1.0,
    )  # fmt: skip


@contextmanager
def without_brokers() -> Iterator[None]:
    """Remove brokers named in the environment."""
    with patch.dict(os.environ):
        for name in BROKERS:
            os.environ.pop(f"CELERY_{name.upper()}", None)
        yield


@contextmanager
def _configured(app: Celeriac, redis_url: str, prefix: str) -> Iterator[None]:
    """Add a layer above the user's configuration: see `celeriac.seam.configuration`."""
    options = dict(app.conf.broker_transport_options) | ({"global_keyprefix": prefix} if prefix else {})
    layer: Mapping[str, Any] = dict.fromkeys(BROKERS, redis_url) | {"broker_transport_options": options}
    maps = app.conf.maps
    maps.insert(1, layer)
    try:
        yield
    finally:
        maps[:] = [kept for kept in maps if kept is not layer]


#: The app's cached attributes that depend on its servers.
MADE = ("publisher", "database", "by_name", "clocks", "limited", "tally")


def disconnect(app: Celeriac) -> None:
    """Close the app's connections, also in Celery's own pool. New ones are made when needed, from `app.settings`."""
    if "enqueuer" in app.__dict__:
        app.enqueuer.kicker.flush()
    made = {name: app.__dict__.pop(name) for name in MADE if name in app.__dict__}
    if "publisher" in made:
        made["publisher"].close()
    if "database" in made:
        made["database"].dispose()
    app._after_fork()
