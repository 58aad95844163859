"""docs/documents.md as rows, and what they name looked up: `python -m tests.documents` counts them.

A row is `| what the document names | its kind | where it is here | the test that holds it, or why it differs |`. In its
third column whatever stands in backticks has to be there:

    `tasks/stores.py`, `tasks/stores.py::run_now`    a file, and what it defines or (where it is no Python) says
    `GET /api/tasks` (token: read), `/admin/tasks`   an endpoint and the scope that opens it, a page of the dashboard
    `STALE_DAYS`                                     a variable that the code reads
    `worker_tasks`, `worker_tasks.status`            a table, view, function, index, role, schedule, alert or figure
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from celeriac.alerts.rules import RULES
from celeriac.api.server import create
from celeriac.dashboard.app import ROUTERS
from celeriac.metrics.catalogue import METRICS
from celeriac.schedules.listed import entries
from tasks import app
from tasks.watching import RULES as OWN_RULES
from tests.api.scopes import operations
from tests.processes import ROOT

PAGE = ROOT / "docs" / "documents.md"

DIFFERS = "differs, because "

KINDS = (
    "name", "file", "step", "column", "status", "setting", "figure", "rule", "endpoint", "query", "call", "line",
    "metric", "alert", "screen", "recipe", "trouble", "deployment", "advice",
)  # fmt: skip

CODE = ("beat", "celeriac", "demo", "deploy", "models", "sandbox", "tasks")
SQL = ("celeriac/store/migrations/versions", "celeriac/store/routines", "migrations/versions")


class Row(NamedTuple):
    document: str
    thing: str
    kind: str
    here: str
    held: str

    @property
    def places(self) -> list[str]:
        return re.findall(r"`([^`]+)`", self.here)

    @property
    def tests(self) -> list[tuple[str, str]]:
        """File and name."""
        return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", self.held)

    @property
    def reason(self) -> str:
        return self.held.partition(DIFFERS)[2].strip()


def rows(page: str) -> Iterator[Row]:
    """Raises ValueError for a line of a table that is no row."""
    document = ""
    for line in page.splitlines():
        if line.startswith("## "):
            document = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith(("| named there", "| ---")):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if len(cells) != 4:
                raise ValueError(f"four columns, not {len(cells)}: {line}")
            yield Row(document, *cells)


def wrong_with(row: Row) -> list[str]:
    """What of it is not so."""
    says = [f"{place} is nowhere" for place in row.places if not is_there(place)]
    says += [f"{place} is not marked as it is to be:{mark}" for place in row.places
             if (mark := tokens().get(place)) and f"`{place}`{mark}" not in row.here]  # fmt: skip
    says += [f"there is no {file}::{name}" for file, name in row.tests if name not in tests_of(file)]
    if not row.thing or row.kind not in KINDS:
        says.append(f"{row.kind!r} is no kind")
    if row.tests and not row.here:
        says.append("it has a test and no place")
    if not row.reason and not (row.here and row.tests):
        says.append("it has neither place and test nor a reason")
    if re.sub(r"`tests/[\w/]+\.py::\w+`,?", "", row.held.partition(DIFFERS)[0]).strip(" ;"):
        says.append(f"{row.held} is neither tests nor a reason")
    return says


# -- where things are --------------------------------------------------------------------------------------------------


def is_there(place: str) -> bool:
    if re.fullmatch(r"(GET|POST|PUT|DELETE) /\S+", place):
        return place in endpoints()
    if place.startswith("/admin"):
        return place.removeprefix("/admin") in pages()
    file, _, name = place.partition("::")
    if "/" in file or (ROOT / file).exists():
        return (ROOT / file).exists() and (not name or name in defined(ROOT / file))
    if re.fullmatch(r"[A-Z][A-Z0-9_]+", place):
        return place in variables()
    name, _, column = place.partition(".")
    return column in sql().get(name, ()) if column else name in sql() or name in names()


@cache
def endpoints() -> set[str]:
    paths = create(app).openapi()["paths"]
    return {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}


@cache
def tokens() -> dict[str, str]:
    """What is to stand behind an endpoint: the scope that a token has to have for it."""
    return {f"{method} {path}": f" (token: {scope})" for method, path, scope in operations()}


@cache
def pages() -> set[str]:
    """Below /admin."""
    found = {getattr(route, "path", "") for router in ROUTERS for route in router.routes}
    return {re.sub(r":path\}", "}", path) for path in found} | {""}


@cache
def variables() -> set[str]:
    """Names of the environment that stand in code as texts."""
    sources = "".join(path.read_text() for folder in CODE for path in (ROOT / folder).rglob("*.py"))
    return set(re.findall(r"[\"']([A-Z][A-Z0-9_]+)[\"']", sources))


@cache
def names() -> set[str]:
    """Roles, schedules, alerts, figures."""
    alerts = {rule.name for rule in (*RULES, *OWN_RULES)}
    roles = {declared.role.name for declared in app.roles.all()}
    return alerts | roles | set(entries(app, {})) | {metric.full_name for metric in METRICS}


@cache
def sql() -> dict[str, set[str]]:
    """Each table, view, function, index, constraint: the words of what makes and alters it, and of what that reads."""
    made = (
        r"^(?:CREATE (?:OR REPLACE |UNIQUE |MATERIALIZED )*(?:TABLE|VIEW|FUNCTION|INDEX)|ALTER TABLE)"
        r"(?: IF NOT EXISTS)? (?:celeriac\.)?(\w+)"
    )
    found: dict[str, str] = {}
    for path in (path for folder in SQL for path in sorted((ROOT / folder).iterdir()) if path.is_file()):
        for statement in re.split(r"^(?=CREATE |ALTER )", path.read_text(), flags=re.MULTILINE):
            for name in re.findall(made, statement) + re.findall(r"CONSTRAINT (\w+)", statement):
                found[name] = found.get(name, "") + statement
    return {name: _words(name, found, set()) for name in found}


def _words(name: str, statements: Mapping[str, str], seen: set[str]) -> set[str]:
    statement = statements.get(name, "") if name not in seen else ""
    seen.add(name)
    read = (_words(other, statements, seen) for other in re.findall(r"(?:FROM|JOIN) celeriac\.(\w+)", statement))
    return set(re.findall(r"\w+", statement)).union(*read)


@cache
def defined(path: Path) -> set[str]:
    """What a module defines, at its top and in its classes; of another file its words."""
    if path.suffix != ".py":
        return set(re.findall(r"[\w-]+", path.read_text()))
    return {name for node in ast.walk(ast.parse(path.read_text())) for name in _names(node)}


def _names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


@cache
def tests_of(file: str) -> set[str]:
    path = ROOT / file
    return {name for name in defined(path) if name.startswith("test_")} if path.exists() else set()


def main() -> None:
    """How many rows of each kind each document has."""
    counts = Counter((row.document, row.kind) for row in rows(PAGE.read_text()))
    documents = list(dict.fromkeys(document for document, _ in counts))
    for document in documents:
        given = {kind: counts[document, kind] for kind in KINDS if counts[document, kind]}
        print(f"{document}: {sum(given.values())} ({', '.join(f'{n} {kind}' for kind, n in given.items())})")
    print(f"all: {counts.total()}")


if __name__ == "__main__":
    main()
