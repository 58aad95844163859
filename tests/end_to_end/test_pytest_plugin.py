"""The plugin for pytest: the page about testing runs as it is written, and so do tests for Celery's own fixtures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from sqlalchemy import make_url

from celeriac import Celeriac, Settings, testing
from celeriac.testing.servers import pointed
from tests.conftest import Servers
from tests.deploy.written import of
from tests.processes import ROOT, Rows

PAGE = (ROOT / "docs" / "testing.md").read_text()

FILES = of("docs/testing.md", "python", "ini")

#: What takes no part in these runs.
WITHOUT = ["-p", "no:cacheprovider", "-p", "no:xdist"]


@pytest.fixture
def session(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a session of pytest on the tests' servers, which is told of any other broker."""
    for name, value in {
        "DATABASE_URL": servers.database_url,
        "REDIS_URL": servers.redis_url,
        "CELERY_BROKER_URL": "redis://127.0.0.1:1/0",
        "PYTHONPATH": str(ROOT),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    return tmp_path


def passed(folder: Path, *more: str) -> int:
    """How many tests do, of a folder where all should."""
    command = [sys.executable, "-m", "pytest", "-p", "pytest_celeriac", *WITHOUT, "-q", *more]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(re.findall(r"(\d+) passed", done.stdout)[-1])


def written(folder: Path) -> None:
    """Each block as the file its first line names."""
    for block in FILES:
        first, _, body = block.text.partition("\n")
        path = folder / first.removeprefix("# ")
        path.parent.mkdir(exist_ok=True)
        path.write_text(body)


def leftovers(servers: Servers) -> list[str]:
    """Databases that such sessions made."""
    rows = Rows(servers.database_url)
    found = rows("SELECT datname FROM pg_database WHERE datname LIKE 'celeriac\\_%' ORDER BY 1")
    rows.close()
    return [name for (name,) in found]


def test_the_page_about_testing_runs_as_it_is_written(session: Path, servers: Servers) -> None:
    before = leftovers(servers)
    written(session)
    assert passed(session, "test_shop.py") == PAGE.partition("## What there is")[0].count("\ndef test_")
    assert passed(session / "contrib") == PAGE.partition("## Celery's own fixtures")[2].count("\ndef test_")
    assert [name for name in leftovers(servers) if name not in before and f"_{os.getpid()}_" not in name] == []


def test_every_function_and_fixture_is_told_on_the_page() -> None:
    import pytest_celeriac

    fixtures = re.findall(r"^def (celeriac_\w+)\(", Path(pytest_celeriac.__file__).read_text(), re.MULTILINE)
    told = set(re.findall(r"`(\w+)", PAGE))
    assert fixtures
    assert {*fixtures, *testing.__all__} - told - {"Ran"} == set()


def test_pytest_loads_the_plugin_by_itself_and_that_imports_nothing() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"pytest_celeriac": "pytest_celeriac"}
    heavy = "{'celeriac', 'celery', 'sqlalchemy', 'redis'} & set(sys.modules)"
    code = f"import pytest_celeriac, sys; assert not ({heavy})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


CELERYS = """
import celery
import pytest
from celery import shared_task
from celery.contrib.testing.tasks import ping

from celeriac import Celeriac

class Division(celery.Task):
    name = "division"

    def run(self, x, y):
        return x / y

@shared_task
def multiply(x, y):
    return x * y

@pytest.fixture(scope="session")
def celery_config():
    return {"broker_url": "memory://", "result_backend": "cache+memory://", "timezone": "Europe/Berlin"}

@pytest.fixture(scope="session")
def celery_parameters():
    return {"task_cls": Base, "broker": "memory://", "strict_typing": False}

class Base(celery.Task):
    kind = "ours"

@pytest.fixture(scope="session")
def celery_includes():
    return ["included"]

@pytest.fixture(scope="session")
def celery_class_tasks():
    return [Division]

@pytest.fixture(scope="session")
def celery_worker_parameters():
    return {"perform_ping_check": True, "queues": ("celery", "own")}

def test_the_sessions_worker(celery_session_app, celery_session_worker):
    assert multiply.delay(2, 3).get(timeout=10) == 6
    assert celery_session_app.tasks["division"].delay(6, 3).get(timeout=10) == 2
    assert celery_session_app.tasks["included.told"].delay().get(timeout=10) == "included"
    assert (celery.group(multiply.s(n, n) for n in range(3)) | total.s()).delay().get(timeout=10) == 5

def test_it_lives_on(celery_session_worker):
    assert ping.delay().get(timeout=10) == "pong"

def test_the_app_is_ours_and_configured_as_said(celery_app):
    assert isinstance(celery_app, Celeriac)
    assert celery_app.conf.timezone == "Europe/Berlin"
    assert celery_app.Task.kind == "ours"
    assert celery_app.conf.worker_log_color is False

@pytest.mark.celery(timezone="Asia/Tokyo")
def test_a_mark_overrides(celery_app):
    assert celery_app.conf.timezone == "Asia/Tokyo"

@pytest.mark.parametrize("n", range(2))
def test_each_test_has_a_worker_of_its_own(celery_app, celery_worker, n):
    @celery_app.task
    def add(x, y):
        return x + y

    @celery_app.task(role="own")
    def own():
        return "own"

    celery_worker.reload()
    assert add.delay(4, 4).get(timeout=10) == 8
    assert own.delay().get(timeout=10) == "own"
    assert multiply.delay(4, n).get(timeout=10) == 4 * n
    with pytest.raises(TypeError):
        add.apply_async((1,)).get(timeout=10)

@shared_task
def total(numbers):
    return sum(numbers)

"""

INCLUDED = """
from celery import shared_task

@shared_task
def told():
    return "included"
"""

TRAPPED = """
import pytest

@pytest.fixture(scope="session")
def use_celery_app_trap():
    return True

def test_the_trap(celery_app):
    from celery import current_app

    with pytest.raises(RuntimeError, match="depends on current_app"):
        current_app.tasks

    @celery_app.task
    def add(x, y):
        return x + y

    assert add.delay(1, 2).state == "PENDING"
"""


def test_celerys_own_fixtures_work_on_rows(session: Path) -> None:
    written(session)
    (session / "contrib" / "test_ported.py").unlink()
    (session / "contrib" / "test_celerys.py").write_text(CELERYS)
    (session / "contrib" / "included.py").write_text(INCLUDED)
    (session / "trapped").mkdir()
    (session / "trapped" / "conftest.py").write_text((session / "contrib" / "conftest.py").read_text())
    (session / "trapped" / "test_trapped.py").write_text(TRAPPED)
    assert passed(session / "contrib", "-k", "session or lives") == 2
    assert passed(session / "contrib", "-k", "not session and not lives") == 4
    assert passed(session / "trapped") == 1


def test_an_app_is_pointed_elsewhere_and_back_again(
    servers: Servers, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELERY_BROKER_READ_URL", "redis://elsewhere:1/0")
    there = make_url(servers.redis_url)
    given = Settings(database_url="postgresql://nobody@127.0.0.1:1/none")
    app = Celeriac("far", settings=given, broker="redis://elsewhere:1/0", set_as_current=False)
    with servers.prefix() as prefix, pointed(app, database_url, servers.redis_url, prefix), testing.mode("worker"):
        assert app.redis_url == servers.redis_url
        for connection in (app.connection_for_read(), app.connection_for_write()):
            assert (connection.hostname, connection.port) == (there.host, there.port)
        assert app.publisher.ask(lambda client: client.lpush("known", 1)) == 1
        assert app.publisher.ask(lambda client: client.llen("known")) == 1
        app.register_roles()
    assert app.settings == given
    assert app.redis_url == app.conf.broker_read_url == "redis://elsewhere:1/0"
    assert app.conf.broker_transport_options == {}
    with servers.prefix() as nothing, pointed(app, database_url, servers.redis_url, nothing), testing.mode("worker"):
        assert app.publisher.ask(lambda client: client.llen("known")) == 0
