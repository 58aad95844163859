"""The house: no import circle, no long file, and folders whose names say what they are for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from celeriac import Celeriac, Settings
from celeriac.alerts.measure import GROUPS
from celeriac.dispatch.app import DispatchApp
from celeriac.doctor.examine import CHECKS
from celeriac.repair import SWEEPS
from celeriac.repair.app import RepairApp
from celeriac.run.app import HandlerApp, ReporterApp, RunApp, TaskApp
from celeriac.seam.app import EnqueuerApp, ResultsApp, SeamApp
from celeriac.worker.app import WorkerApp
from tests.processes import ROOT

ENGINE = ROOT / "celeriac"
LONGEST = 500

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


#: What the folders ask of the app.
APPS = (
    DispatchApp, TaskApp, HandlerApp, ReporterApp, RunApp, WorkerApp, EnqueuerApp, ResultsApp, SeamApp, RepairApp,
)  # fmt: skip


def members(asked: type) -> set[str]:
    """Of this protocol itself, without those it goes on from."""
    names = (*vars(asked), *vars(asked).get("__annotations__", ()))
    return {name for name in names if not name.startswith("_")}


def test_an_app_has_what_the_folders_ask_of_it() -> None:
    """Mypy compares the types of what is there; it takes nothing of Celery's for missing."""
    app = Celeriac("shop", settings=Settings(), set_as_current=False)
    for asked in APPS:
        assert members(asked)
        assert members(asked) <= {*dir(app)}


@pytest.mark.parametrize("asked", APPS)
def test_a_folder_asks_the_app_for_no_more_than_it_reads(asked: type) -> None:
    folder = MODULES[asked.__module__].parent
    read = {name for path in folder.glob("*.py") for name in asked_of_app(ast.parse(path.read_text()))}
    assert members(asked) <= read


def asked_of_app(tree: ast.AST) -> Iterator[str]:
    """What is read of an `app`, whoever's it is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).rpartition(".")[2] == "app":
            yield node.attr


#: Handlers, commands and pages get the app from FastAPI and Click, whatever they use of it.
SURFACES = {"api", "cli", "dashboard"}

#: Entries of tables, each called as all others of its table.
ENTRIES = {f"{entry.__module__}.{entry.__qualname__}" for entry in (*SWEEPS.values(), *GROUPS)} | {
    f"{check.look.__module__}.{check.look.__qualname__}" for check in CHECKS
}

#: Others that take the app and read one thing of it: why.
WITH_APP = {
    "celeriac.alerts.measure.read": "an entry of GROUPS, made of an application's rule",
    "celeriac.run.app.__call__": "a protocol: it has no body",
    "celeriac.schedules.listed.entry": "an entry of an application's `schedules`, which are called with their app",
    "celeriac.testing.here.exchanged": "exchanges parts of the app itself",
    "celeriac.testing.servers._configured": "`conf` is another object once it was read; only that one has layers",
}


def takers(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Functions with a parameter `app`, and classes that are made with one."""
    for node in ast.walk(tree):
        made = [node] if isinstance(node, ast.FunctionDef) and node.name != "__init__" else []
        if isinstance(node, ast.ClassDef):
            made = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
        for call in made:
            arguments = (*call.args.posonlyargs, *call.args.args, *call.args.kwonlyargs)
            if any(argument.arg == "app" for argument in arguments):
                yield getattr(node, "name", ""), node


def reads_one_thing(taker: ast.AST) -> bool:
    """Whether it reads one member of the app at most, and hands the app itself to nobody."""
    tree = ast.parse(ast.unparse(taker).replace("self.app = app", "pass"))
    parts = [node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]
    named = [node for node in parts if ast.unparse(node) in ("app", "self.app")]
    read = [node.attr for node in parts if isinstance(node, ast.Attribute) and node.value in named]
    return len(named) == len(read) and len({*read}) < 2


def test_a_part_that_needs_one_thing_of_the_app_takes_that() -> None:
    """Decision 32. One that no longer does has to be struck off `WITH_APP`."""
    lone = {
        f"{module}.{name}"
        for module, path in MODULES.items()
        if path.relative_to(ENGINE).parts[0] not in SURFACES
        for name, taker in takers(ast.parse(path.read_text()))
        if reads_one_thing(taker)
    }
    assert lone - ENTRIES == {*WITH_APP}


def test_who_takes_the_app_for_one_thing_would_be_found() -> None:
    for source, is_lone in (
        ("def look(app):\n    return app.database", True),
        ("def look(*, app):\n    return app.database, app.database", True),
        ("def look(app):\n    return app.database, app.settings", False),
        ("def look(app):\n    return app.database, see(app)", False),
        ("class A:\n    def __init__(self, app):\n        self.app = app\n    def b(self): return self.app.x", True),
        ("class A:\n    def __init__(self, app):\n        self.app = app\n    def b(self): return f(self.app)", False),
    ):
        ((_, taker),) = takers(ast.parse(source))
        assert reads_one_thing(taker) is is_lone


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
    "doctor/examine.py": ["says"], "insights/why/reasons.py": ["says"],
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
    riddles = {
        str(path.relative_to(ENGINE)): sorted(
            name for name in bindings(ast.parse(path.read_text())) if name.strip("_").lower() in RIDDLES
        )
        for path in MODULES.values()
    }
    assert {file: names for file, names in riddles.items() if names} == KNOWN


#: Answers of the API that have the name of the record they are read from.
ANSWERS = {
    "AccountRole", "AccountShare", "Check", "Edge", "FailureGroup", "Failures", "Finding", "Holding", "Lateness",
    "Lock", "Locks", "Mark", "Node", "Received", "ReceivedStep", "RoleDepth", "Shares", "UnderWay", "UniqueKey",
    "WaitingTask", "Waits", "Workflow",
}  # fmt: skip

#: Other class names of two modules: what each of the two is.
TWO_THINGS = {
    "Ambient": "what an app asks of the transaction around a call, and Django's answer",
    "Backend": "what a run asks of Celery's result backend, and one of Django's tasks framework",
    "Call": "a task with its options, and what a message of a plain Celery app asks for",
    "Command": "of the command line, which takes --json, and Django's of manage.py",
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
    "Task": "an app's, and Django's model of its row",
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


#: The folders of a task's way, which a newcomer reads first.
CORE = ("canvas", "dispatch", "enqueue", "roles", "run", "settle", "store")

#: A module with fewer lines scatters what belongs to a verb.
SHORTEST = 40

#: The core's shorter modules: why each is one of its own.
SHORT = {
    "celeriac.dispatch.app": "each folder states its part of the app in `app.py`",
    "celeriac.roles.backoff": "a retry's delay is looked for under this name",
    "celeriac.store.ready": "one statement's parts, shared by folders that may not import one another",
    "celeriac.store.role_names": "pure; each folder reads lanes, whatever else it is about",
    "celeriac.store.shell": "pure; every command that is printed quotes with it",
}


def test_a_short_module_of_the_core_has_a_reason() -> None:
    """One that has grown, or is gone, has to be struck off. A migration has the size of what it changes."""
    modules = {name: path for name, path in MODULES.items() if path.name != "__init__.py"}
    short = {
        name
        for name, path in modules.items()
        if name.split(".")[1] in CORE and ".migrations." not in name and len(path.read_text().splitlines()) < SHORTEST
    }
    assert short == {*SHORT}
    assert len(SHORT) <= 10


def test_a_task_is_understood_in_one_sitting() -> None:
    """The list in docs/architecture.md: so many files and lines are read without a pause."""
    _, section = (ROOT / "docs" / "architecture.md").read_text().split("### In one sitting\n")
    files = re.findall(r"^\| `([\w/]+\.py)` \|", section.partition("\n## ")[0], re.MULTILINE)
    lines = [len((ENGINE / file).read_text().splitlines()) for file in files]
    assert 10 <= len(files) <= 15
    assert sum(lines) <= 2_500
    assert {file.partition("/")[0] for file in files} == {"enqueue", "dispatch", "run", "settle", "roles", "store"}
