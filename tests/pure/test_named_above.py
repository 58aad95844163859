"""What the contract of imports cannot see: a module that names what stands above it, to import it later."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator

from tests.processes import ROOT
from tests.pure.test_structure import MODULES

#: Folders above others that a module names without importing it, beside `celeriac/above.py`: why.
NAMED = {
    "celeriac.app": "Celery makes these of the app by their names (`subclass_with_self`)",
    "celeriac.seam.configuration": "values of Celery's own settings",
}


def order() -> dict[str, int]:
    """Of the folders, the highest first, as the contract of imports has it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return {name.strip(): place for place, layer in enumerate(layers) for name in layer.split("|")}


def named_above(name: str, tree: ast.AST) -> Iterator[str]:
    """What of the folders above that of this module it has the name of, as a text."""
    places = order()
    here = places.get(".".join(name.split(".")[:2]), len(places))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value:
            module = node.value.partition(":")[0]
            if module in MODULES and places.get(".".join(module.split(".")[:2]), here) < here:
                yield node.value


def test_what_stands_above_is_named_in_one_place() -> None:
    found = {name for name, path in MODULES.items() if [*named_above(name, ast.parse(path.read_text()))]}
    assert found == {"celeriac.above", *NAMED}
    assert [*named_above("celeriac.worker.step", ast.parse("load('celeriac.alerts.review:AlertWatch')"))]
    assert not [*named_above("celeriac.cli.stack", ast.parse("load('celeriac.alerts.review:AlertWatch')"))]
