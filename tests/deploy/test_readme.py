"""README.md and the pages it leads to tell the truth: their settings are the engine's, their examples run."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest
from celery import _state
from sqlalchemy import text
from sqlalchemy.orm import Session

from celeriac import Celeriac, Settings
from celeriac.roles import registry
from celeriac.roles.role import Role
from celeriac.roles.signature import Signature
from celeriac.store.connections import Database
from celeriac.store.grants import grant
from tests.deploy.written import of
from tests.processes import ROOT

README = (ROOT / "README.md").read_text()
PAGES = README + "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))

EXAMPLES = [*of("README.md", "python"), *of("docs/roles.md", "python")]
STATEMENTS = of("docs/sql.md", "sql")

#: How the names of the application's variables begin.
PREFIXES = (
    "BROWSER|CHROMIUM|DNS|DUDA|DUTCHIE|INSTASITES|MAIL|NODE|PROXY|QM|REDDIT|RESET|SMTP|STALE|STORES|THUMBNAILS|WEBMENUS"
)


@pytest.mark.parametrize("setting", [f for f in fields(Settings) if f.metadata], ids=lambda f: str(f.name))
def test_every_numeric_setting_is_told_with_its_default(setting: Any) -> None:
    default = setting.default / setting.metadata["scale"]
    assert f"| `{setting.metadata['variable']}` | {default:.16g} |" in PAGES


def test_every_variable_the_application_reads_is_told() -> None:
    code = "".join(path.read_text() for path in (ROOT / "tasks").glob("*.py"))
    read = re.findall(rf'"((?:{PREFIXES})_[A-Z_]+)"', code)
    assert read
    assert [name for name in set(read) if f"`{name}`" not in PAGES] == []


def test_its_examples_run_one_after_the_other(
    database: Database, database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_state, "_on_app_finalizers", set(_state._on_app_finalizers))
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("REDIS_URL", redis_url)
    apps: list[Celeriac] = []
    with Session(database.engine) as session, session.begin():
        names: dict[str, Any] = {"session": session}
        for block in EXAMPLES:
            exec(block.text, names)
            apps.append(names["app"])
            apps[-1].register_roles()
    with database.statement() as connection:
        enqueued = "SELECT role, array_agg((unique_key)::int ORDER BY id), count(DISTINCT account) FROM worker_tasks"
        assert connection.execute(text(f"{enqueued} GROUP BY role ORDER BY role")).all() == [
            ("index", [None] * 5, 1), ("menu_resync", [7, 8, 9, 10, *range(11, 21), 21], 2), ("shop.resync", [7], 1)
        ]  # fmt: skip
    for app in set(apps):
        app.publisher.close()
        app.database.engine.dispose()


def test_the_statements_of_the_sql_page_run(database: Database) -> None:
    """In a transaction that is rolled back: a login belongs to the whole cluster."""
    role = Role(name="product_resync", unique_by="dispensary_id")
    signature = Signature.of(lambda dispensary_id: dispensary_id, role=role.name)
    with database.statement() as connection:
        row = {"role": role.name, "definition": role.definition(), "parameters": signature.describe()}
        registry.register(connection, [row], 0)
    with database.engine.connect() as connection:
        grant(connection)
        for block in STATEMENTS:
            connection.exec_driver_sql(block.text)
        assert connection.execute(text("SELECT count(*), max(priority) FROM worker_tasks")).one() == (2, 50)
        connection.rollback()


def test_the_first_page_is_read_in_a_sitting() -> None:
    assert len(README.splitlines()) <= 150


def test_the_page_for_contributors_is_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 120
