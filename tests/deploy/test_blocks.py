"""The Python and SQL blocks of README.md and the pages in docs run as they stand: here, or by the tests named here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import _state

from celeriac.store.connections import Database
from tasks import app
from tests.deploy.written import PAGES
from tests.processes import ROOT
from tests.systems.stack import on_servers

DOCS = ROOT / "docs"

#: What a page's Python takes for granted.
GIVEN = {
    DOCS / "adopting.md": "from celeriac import Celeriac",
    DOCS / "dashboard.md": "from celeriac import Celeriac\napp = Celeriac('shop')",
    DOCS / "thumbnails.md": "",
    DOCS / "workflows.md": """
from celeriac import Celeriac
app = Celeriac("shop")
def takes(*given): ...
names = ("fetch", "parse", "store", "price", "total")
fetch, parse, store, price, total = (app.task(name=name)(takes) for name in names)
app.register_roles()
""",
}

#: By test_readme.py, tests/pure/test_expressions.py, tests/end_to_end/test_pytest_plugin.py and test_tutorial.py.
ELSEWHERE = {ROOT / "README.md", DOCS / "expressions.md", DOCS / "testing.md", DOCS / "tutorial.md"}

#: By test_readme.py, with the rights it needs, and tests/systems/test_instasites.py, with its accounts.
SQL_ELSEWHERE = {DOCS / "sql.md", DOCS / "instasites.md"}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def servers_of_the_page(database_url: str, redis_url: str) -> Iterator[None]:
    with on_servers(app, {"DATABASE_URL": database_url, "REDIS_URL": redis_url}):
        app.register_roles()
        yield


@pytest.fixture
def apps_of_the_page(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a page declares is no task of later apps, and its app nobody's current one."""
    monkeypatch.setattr(_state, "_on_app_finalizers", set(_state._on_app_finalizers))
    before = _state.get_current_app()
    yield
    before.set_current()


@pytest.mark.usefixtures("servers_of_the_page", "apps_of_the_page")
def test_python_runs() -> None:
    for page, given in GIVEN.items():
        names: dict[str, Any] = {"__name__": page.stem}
        for block in (given, *blocks(page, "python")):
            exec(compile(block, str(page), "exec"), names)
        if names["app"] is not app:
            names["app"].publisher.close()
            names["app"].database.engine.dispose()


def test_sql_runs(database: Database) -> None:
    run = [(page, block) for page in {*PAGES} - SQL_ELSEWHERE for block in blocks(page, "sql")]
    assert run
    for _, block in run:
        with database.engine.connect() as connection:
            connection.exec_driver_sql("SET search_path = public, celeriac")
            connection.exec_driver_sql(block)
            connection.rollback()


def test_no_page_is_left_out() -> None:
    assert {page for page in PAGES if blocks(page, "python")} == {*GIVEN} | ELSEWHERE
