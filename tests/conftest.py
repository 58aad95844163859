"""Real servers for every test: a database cloned from a migrated template, a Redis database of its own.

`DATABASE_URL` and `REDIS_URL` (both or none) name servers to use; the tests create and drop databases there and
empty the Redis database. Without them the embedded stack runs in a temporary folder.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery, _state
from sqlalchemy import make_url
from xdist.scheduler import LoadScopeScheduling

from celeriac import Celeriac, Settings, local
from celeriac.store.connections import Database
from celeriac.store.migrate import migrate
from celeriac.testing.servers import Servers, memory
from celeriac.testing.servers import servers as testing_servers
from tests import tiers
from tests.databases import Clean, Stock
from tests.matrix.pooled import through
from tests.processes import Rows

ROOT = Path(__file__).parent.parent
APPLICATION = ROOT / "migrations" / "versions"


# Started in the background of a shell, everything from here on would be deaf to the Ctrl-C that tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Told not to keep what it has compiled, each Python that is started here compiles the engine anew: most of a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A server in a folder of a test's own waits for the disk, and the more so the more of them start: not in memory.
if (in_memory := memory()) and not os.statvfs(in_memory).f_flag & os.ST_NOEXEC:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", in_memory)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="the proof under load at full size (tests/faults)")
    parser.addoption("--nightly", action="store_true", help="the tests that take their time, and no others")


#: Folders of tests that take long, in this order before all others: none is left alone at the end of a run.
LONG = (
    "deploy",
    "dashboard",
    "systems",
    "faults",
    "end_to_end",
    "example",
    "django_project",
    "outside",
    "demo",
    "local",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    by_night = config.getoption("--nightly")
    ours, others = tiers.chosen(items, by_night=by_night)
    if others and (by_night or not any("::" in argument for argument in config.args)):
        config.hook.pytest_deselected(items=others)
        items[:] = ours

    def place(item: pytest.Item) -> int:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        return LONG.index(folder) if folder in LONG else len(LONG)

    items.sort(key=place)
    gc.collect()
    gc.freeze()  # thousands of tests are no garbage: nobody looks through them again
    if os.environ.get("CI"):
        for item in items:
            if item.path.name != "test_races.py":
                # Named at the end of the run: docs/decisions/0024.
                item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Makes what a test has logged fit for the way between processes, which ends at a lone surrogate."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Shows where the time went, and why a test failed that was run once more: the second time may tell less."""
    tests = _seconds(terminalreporter)
    if not config.option.collectonly and len(tests) > 1:
        terminalreporter.write_sep("=", "where the time went")
        for line in tiers.table(tests, tiers.pace()):
            terminalreporter.write_line(line)
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.write_sep("_", f"{report.nodeid}, the first time")
        terminalreporter.write_line(report.longreprtext)


def _seconds(terminalreporter: pytest.TerminalReporter) -> Counter[str]:
    """Seconds by test of this run."""
    reports = (report for some in terminalreporter.stats.values() for report in some)
    return tiers.seconds(report for report in reports if isinstance(report, pytest.TestReport))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run of all tests fails where a folder has outgrown its limit; in CI it is only named."""
    config, reporter = session.config, session.config.pluginmanager.get_plugin("terminalreporter")
    is_whole = not (config.option.keyword or config.option.markexpr or config.getoption("--nightly"))
    if not is_whole or config.args != config.getini("testpaths") or hasattr(config, "workerinput"):
        return
    for line in tiers.over(tiers.by_folder(_seconds(reporter)), tiers.pace()):
        reporter.write_line(f"TOO SLOW: {line}")
        if not os.environ.get("CI"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


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


def _own_redis_database(url: str) -> str:
    """Tests that run side by side empty each their own."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return make_url(url).set(database=str(number)).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with testing_servers() as servers:
        if os.environ.get("REDIS_URL"):
            servers.redis_url = _own_redis_database(servers.redis_url)
        yield servers


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser. CI has one; elsewhere its tests are skipped where there is none."""
    from tasks.chromium import NoBrowser, find

    try:
        return find()
    except NoBrowser as missing:
        pytest.fail(str(missing)) if os.environ.get("CI") else pytest.skip(str(missing))


@pytest.fixture(scope="session")
def promtool() -> str:
    """Prometheus' tool. CI has it; elsewhere its tests are skipped where there is none."""
    found = shutil.which(os.environ.get("PROMTOOL_PATH") or "promtool")
    if found is None:
        missing = "no promtool: install Debian's package prometheus, or say where one is in PROMTOOL_PATH"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    return found


@pytest.fixture(scope="session")
def template(servers: Servers) -> Iterator[str]:
    with servers.template(lambda engine: migrate(engine, APPLICATION)) as name:
        yield name


@pytest.fixture(scope="session")
def stock(servers: Servers, template: str) -> Iterator[Stock]:
    stock = Stock(servers, template)
    yield stock
    stock.close()


@pytest.fixture
def clean(stock: Stock) -> Iterator[Clean]:
    """The test's database, and what puts it right afterwards."""
    with stock.taken() as kept:
        yield kept


@pytest.fixture
def database_url(clean: Clean) -> str:
    return through(clean.url)


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


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[local.ValkeyServer]:
    """A server of the module's own, to be filled or spoilt."""
    server = local.ValkeyServer(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def shared_tasks() -> Iterator[None]:
    """What a test declares without `shared=False` is a task of later apps, too; not of other tests'."""
    before = set(_state._on_app_finalizers)
    yield
    made = _state._on_app_finalizers - before
    _state._on_app_finalizers -= {callback for callback in made if _is_of_a_function_within(callback)}


def _is_of_a_function_within(callback: Any) -> bool:
    """Whether it makes a task of a function that stands in another: a module's tasks stay."""
    parts = [cell.cell_contents for cell in callback.__closure__ or ()]
    return any("<locals>" in getattr(part, "__qualname__", "") for part in parts)


@pytest.fixture
def app(database_url: str, redis_url: str) -> Iterator[Celeriac]:
    """An app of its own on the test's servers; declare tasks on it."""
    app = Celeriac("test", settings=Settings(database_url=database_url, redis_url=redis_url), set_as_current=False)
    yield app
    app.publisher.close()
    app.database.dispose()
