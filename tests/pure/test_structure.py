"""The house: no import circle, no long file, and folders whose names say what they are for."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from celeriac import Celeriac, Settings
from celeriac.repair.app import RepairApp
from celeriac.run.app import RunApp
from celeriac.seam.app import SeamApp
from celeriac.worker.app import WorkerApp
from tests.processes import ROOT

ENGINE = ROOT / "celeriac"
LONGEST = 300

#: What is built; environments and caches begin with a dot.
APART = {"build", "dist"}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def files_of(language: str) -> list[Path]:
    """Of the whole repository, by their suffix."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name not in APART]
    shown = [folder for folder in folders if not folder.name.startswith(".")]
    return [*ROOT.glob(f"*.{language}"), *(path for folder in shown for path in folder.rglob(f"*.{language}"))]


MODULES = {name_of(path): path for path in sorted(ENGINE.rglob("*.py"))}


def imported(tree: ast.AST) -> Iterator[str]:
    """What a module imports, wherever that stands, be it for a type checker alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (
                f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in MODULES else node.module
                for alias in node.names
            )
        yield from imported(node)


def graph() -> Mapping[str, set[str]]:
    return {
        name: {other for other in imported(ast.parse(path.read_text())) if other in MODULES and other != name}
        for name, path in MODULES.items()
    }


def circle_in(imports: Mapping[str, set[str]]) -> list[str]:
    """The modules of one circle, from one of them round to itself; none is empty."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as circle:
        return list(circle.args[1])
    return []


def test_no_module_of_the_engine_is_in_an_import_circle() -> None:
    assert circle_in(graph()) == []


def test_a_circle_would_be_found() -> None:
    found = circle_in({**graph(), "celeriac.errors": {"celeriac.app"}})
    assert found[0] == found[-1]
    assert {"celeriac.errors", "celeriac.app"} <= {*found}


def test_what_only_a_type_checker_imports_counts() -> None:
    found = imported(ast.parse("if TYPE_CHECKING:\n    from celeriac.app import Celeriac"))
    assert [*found] == ["celeriac.app"]


@pytest.mark.parametrize("asked", [RunApp, WorkerApp, SeamApp, RepairApp])
def test_an_app_has_what_the_folders_ask_of_it(asked: type) -> None:
    """Mypy compares the types of what is there; it takes nothing of Celery's for missing."""
    app = Celeriac("shop", settings=Settings(), set_as_current=False)
    names = {name for part in asked.__mro__ for name in (*vars(part), *vars(part).get("__annotations__", ()))}
    assert {"database", "kick"} <= names
    assert {name for name in names if not name.startswith("_")} <= {*dir(app)}


@pytest.mark.parametrize(("language", "at_least"), [("py", len(MODULES) + 300), ("sql", 12)])
def test_no_file_is_long(language: str, at_least: int) -> None:
    """Of the whole repository: the tests' files are among them."""
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files_of(language)}
    assert {file: n for file, n in lines.items() if n > LONGEST} == {}
    assert len(lines) > at_least


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES.values()}), ids=lambda path: path.name)
def test_each_folder_says_what_it_is_for(folder: Path) -> None:
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))


#: Participles that name nothing: a reader has to guess the noun they stand for.
RIDDLES = {"given", "found", "told", "says"}

#: Those that templates, answers or an application's rules have under this name, of each file.
KNOWN = {
    "alerts/rules.py": ["says", "says"], "api/alerts.py": ["says"], "api/doctor.py": ["says"],
    "api/scheduled_jobs.py": ["told"], "api/shares.py": ["says"], "api/system.py": ["found", "given"],
    "doctor/examine.py": ["says"], "insights/reasons.py": ["says"],
}  # fmt: skip


def bindings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def test_what_is_bound_has_the_name_of_what_it_is() -> None:
    """The dashboard is still to be gone through."""
    riddles = {
        str(path.relative_to(ENGINE)): sorted(
            name for name in bindings(ast.parse(path.read_text())) if name.strip("_").lower() in RIDDLES
        )
        for path in MODULES.values()
        if path.parent.name != "dashboard"
    }
    assert {file: names for file, names in riddles.items() if names} == KNOWN


#: Answers of the API that have the name of the record they are read from.
ANSWERS = {
    "AccountRole", "AccountShare", "Check", "Edge", "FailureGroup", "Failures", "Finding", "Holding", "Lateness",
    "Lock", "Locks", "Mark", "Node", "RoleDepth", "Shares", "UnderWay", "UniqueKey", "WaitingTask", "Waits",
    "Workflow",
}  # fmt: skip

#: Other class names of two modules: what each of the two is.
TWO_THINGS = {
    "Call": "a task with its options, and what a message of a plain Celery app asks for",
    "Failed": "the verdict that a task is over, and two numbers of a chart of the dashboard's",
    "Guard": "of the local servers, which it ends with their last member, and of the dashboard's requests",
    "Page": "of a list of tasks, and of the dashboard",
    "Panel": "Grafana's word, and Celery's for the commands of a worker",
    "Part": "of a workflow, and of the schema",
    "Problem": "RFC 9457's, and what a command ends with at exit status 1",
    "Process": "what an app is part of, and the place of a run that has a whole process",
    "Rule": "an alert's, and that of an option's value",
    "Solar": "a schedule, and the event of the sun it is made of",
    "Step": "of a bulk, and of the time a diagram shows",
    "_App": "for mypy alone, which compares it with what a folder asks of the app",
}


def folders_of_classes() -> Mapping[str, list[str]]:
    """Of each class name the folders of its modules, one a module."""
    folders: dict[str, list[str]] = {}
    for path in MODULES.values():
        classes = {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)}
        for name in classes:
            folders.setdefault(name, []).append(path.relative_to(ENGINE).parts[0])
    return folders


def test_a_class_name_stands_for_one_thing() -> None:
    """One that no longer is of two modules has to be struck off."""
    twice = {name: folders for name, folders in folders_of_classes().items() if len(folders) > 1}
    answers = {name for name, folders in twice.items() if folders in (["api", "insights"], ["api", "doctor"])}
    assert answers == ANSWERS
    assert {*twice} - answers == {*TWO_THINGS}
