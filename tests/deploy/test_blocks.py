"""The Python and SQL blocks of the pages run as they stand: here, or by the tests named in test_every_block.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from celery import _state
from opentelemetry import trace
from opentelemetry.util._once import Once
from sqlalchemy.orm import Session

from celeriac import Celeriac, signals
from celeriac.alerts.review import added
from celeriac.store.connections import Database
from tasks import app
from tests.deploy.written import BLOCKS, Block, of
from tests.processes import ROOT
from tests.systems.stack import on_servers

SHOP = "from celeriac import Celeriac\napp = Celeriac('shop')\n"

OURS = "from tasks import app\n"

#: What a page's Python takes for granted.
GIVEN = {
    "docs/adopting.md": "from celeriac import Celeriac",
    "docs/callers.md": SHOP,
    "docs/coming-from-celery.md": SHOP,
    "docs/dashboard.md": SHOP,
    "docs/deploying.md": "",
    "docs/handlers.md": "",
    "docs/waiting.md": SHOP + "import httpx\n",
    "docs/observability.md": SHOP,
    "docs/schedules.md": OURS + "from celeriac.schedules import batcher, enqueuing, sweeping",
    "docs/stores.md": OURS,
    "docs/subreddits.md": OURS
    + """
from sqlalchemy.orm import Session
from celeriac.schedules import enqueuing
session = Session(app.database.engine.execution_options(isolation_level="AUTOCOMMIT"))
""",
    "docs/thumbnails.md": OURS,
    "docs/tracing.md": OURS
    + """
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
""",
    "docs/workers.md": SHOP,
    "docs/workflows.md": SHOP
    + """
def takes(*given): ...
names = ("fetch", "parse", "store", "price", "total")
fetch, parse, store, price, total = (app.task(name=name)(takes) for name in names)
app.register_roles()
""",
}

PYTHON = {page: of(page, "python") for page in GIVEN}

#: By test_readme.py, with the rights it needs, and tests/systems/test_instasites.py, with its accounts.
SQL_ELSEWHERE = {ROOT / "docs" / "sql.md", ROOT / "docs" / "instasites.md"}

SQL = [block for block in BLOCKS if block.language == "sql" and block.page not in SQL_ELSEWHERE]


@pytest.fixture
def servers_of_the_page(database_url: str, redis_url: str) -> Iterator[None]:
    with on_servers(app, {"DATABASE_URL": database_url, "REDIS_URL": redis_url}):
        app.register_roles()
        yield


@pytest.fixture
def apps_of_the_page(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a page declares is no task of later apps, and its app nobody's current one; so of what it connects."""
    monkeypatch.setattr(_state, "_on_app_finalizers", set(_state._on_app_finalizers))
    monkeypatch.setattr(signals.pass_finished, "receivers", list(signals.pass_finished.receivers or ()))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    before = _state.get_current_app()
    yield
    before.set_current()
    if trace._TRACER_PROVIDER is not None:
        trace._TRACER_PROVIDER.shutdown()


@pytest.mark.usefixtures("servers_of_the_page", "apps_of_the_page")
@pytest.mark.parametrize("page", GIVEN)
def test_python_runs(page: str) -> None:
    names = ran(GIVEN[page], PYTHON[page])
    for session in (one for one in names.values() if isinstance(one, Session)):
        session.close()
    assert names["app"].database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    if names["app"] is not app:
        names["app"].publisher.close()
        names["app"].database.dispose()


def ran(given: str, blocks: list[Block]) -> dict[str, Any]:
    """What they define, one after the other."""
    names: dict[str, Any] = {"__name__": "page"}
    exec(given, names)
    for block in blocks:
        exec(compile("\n" * block.line + block.text, str(block.page), "exec", dont_inherit=True), names)
    return names


def test_the_rules_of_the_page_about_alerts_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("rules_of_the_page")
    vars(module).update(ran("", PYTHON["docs/observability.md"]))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    app = Celeriac("shop", alerts=f"{module.__name__}:RULES", set_as_current=False)
    assert [rule.name for rule in added(app.alerts, app.settings)] == ["unpaid"]


def test_sql_runs(database: Database) -> None:
    for block in SQL:
        with database.engine.connect() as connection:
            connection.exec_driver_sql("SET search_path = public, celeriac")
            connection.exec_driver_sql(block.text)
            connection.rollback()
