"""docs/operations.md has each operation of every surface, and its queries run."""

from __future__ import annotations

import re
from collections import Counter

from sqlalchemy import text

from celeriac import Celeriac
from celeriac.api.tasks import TaskFilter
from celeriac.cli import main
from celeriac.dashboard import also
from celeriac.dashboard.tasks import FILTERS
from celeriac.insights import Filter
from celeriac.insights.tasks.conditions import CONDITIONS
from celeriac.operate.tokens import IMPLIED
from tests.operations import PAGE, audited, commands, of_routes, operations, page
from tests.processes import ROOT

TABLE = [*operations()]


def test_the_page_is_as_the_code_says() -> None:
    assert page() == PAGE.read_text(), "`python -m tests.operations` writes it"


def test_each_route_is_an_operations() -> None:
    """Of the HTTP API and of the dashboard; each word in the table is there."""
    written = {route for one in TABLE for route in (*one.api, *one.dashboard)}
    assert sorted(of_routes().keys() - written) == [], "tests/operations.py lacks them"
    assert sorted(written - of_routes().keys()) == [], "no surface has them"


def test_each_command_is_an_operations() -> None:
    written = {command for one in TABLE for command in one.command}
    assert sorted(commands() - written) == [], "tests/operations.py lacks them"
    assert sorted(written - commands()) == [], "there is no such command"


def test_each_row_of_the_audit_trail_is_an_operations() -> None:
    written = {row for one in TABLE for row in one.audit}
    assert sorted(audited() - written) == [], "tests/operations.py lacks them"
    assert sorted(written - audited()) == [], "nothing writes them"


def test_what_changes_something_is_audited_or_ones_own() -> None:
    """A route that is more than a look, and asks for more than to look, has a row in the trail; but the making of a
    task, which is a row itself, and a pass, which changes only when it is.
    """
    silent = {one.name for one in TABLE if not one.audit and one.scopes - {"read"}}
    assert silent == {
        "enqueue many", "run a pass now", "migrate from the old crawler",
        "run a system's job now",
    }  # fmt: skip


def test_surfaces_agree_on_the_permission() -> None:
    """API and dashboard ask for the same scope, or the page opens to whoever may look."""
    for one in TABLE:
        of = {
            name: {scope for route in getattr(one, name) if (scope := of_routes()[route])}
            for name in ("api", "dashboard")
        }
        pages = of["dashboard"] - {"read"} or of["dashboard"]
        assert not (of["api"] and pages) or of["api"] & pages or one.section == "The documents' own", one
        assert one.scopes <= IMPLIED.keys() | {"read"}


def test_no_operation_has_two_rows() -> None:
    assert [name for name, n in Counter((one.section, one.name) for one in TABLE).items() if n > 1] == []


def test_each_query_is_one_of_the_schemas(app: Celeriac) -> None:
    queries = [query for one in TABLE for query in one.sql]
    with app.database.reading() as connection:
        for query in queries:
            connection.execute(text(f"EXPLAIN {query}".replace(":", r"\:")))
    assert len(queries) > 30


def test_surfaces_narrow_lists_of_tasks_by_the_same_conditions(app: Celeriac) -> None:
    """An argument (`arguments`) has a form of its own on each surface, and a moment is a page's own."""
    names = {one.name for one in CONDITIONS}
    options = {option for one in main.commands["tasks"].commands["list"].params for option in one.opts}  # type: ignore[attr-defined]
    assert {one.option for one in CONDITIONS} <= options
    assert names == TaskFilter.model_fields.keys()
    assert names - {"status"} == Filter.__dataclass_fields__.keys() - {
        "statuses",
        "arguments",
        "silent",
        "upto",
        "until",
    }
    assert {one.page for one in CONDITIONS} == {*FILTERS} == {*also.FILTERS["tasks"]}
    with app.database.reading() as connection:
        for one in CONDITIONS:
            value = {"status": "('failed')", "priority": "1, 2, '[]'", "newer_than": "7", "older_than": "7"}.get(
                one.name, "'x'"
            )
            connection.exec_driver_sql(f"EXPLAIN SELECT FROM celeriac.worker_tasks WHERE {one.sql.format(value)}")


def test_what_the_page_on_sql_names_is_an_operations(app: Celeriac) -> None:
    """Its functions, and the tables and views of which it says what they have."""
    queries = " ".join(query for one in TABLE for query in one.sql)
    told = {*re.findall(r"`(?:SELECT .*? FROM )?celeriac\.(\w+)[`( ]", (ROOT / "docs" / "sql.md").read_text())}
    assert {"enqueue", "audit", "passes", "task_events"} <= told
    assert {name for name in told if not re.search(rf"\bceleriac\.{name}\b", queries)} == set()
