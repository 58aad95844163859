"""The house: no import circle, no long file, and folders whose names say what they are for."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.processes import ROOT

ENGINE = ROOT / "celeriac"
LONGEST = 300


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ENGINE.rglob("*.py"))}


def imported(tree: ast.AST) -> Iterator[str]:
    """What is imported when the module runs, wherever it stands: not what only a type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING":
            continue
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


@pytest.mark.parametrize("module", MODULES)
def test_no_file_is_long(module: str) -> None:
    assert len(MODULES[module].read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES.values()}), ids=lambda path: path.name)
def test_each_folder_says_what_it_is_for(folder: Path) -> None:
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
