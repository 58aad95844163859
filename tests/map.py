"""Writes docs/map.md: the engine's folders in the order a task takes, their sizes, and what each imports."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "map.md"

INTRODUCTION = """# Map

For whoever looks for a part of the engine: its folders from the surfaces down to the tables, as `python -m tests.map`
finds them. A folder imports only those further down; `lint-imports` refuses all else. Lines are rounded to hundreds.
[Architecture](architecture.md) tells what happens along the way.

| folder | what it is for | files | lines | imports |
| --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of the engine. `imports`: names of other folders."""

    name: str
    purpose: str
    files: int
    lines: int
    imports: tuple[str, ...]

    def row(self) -> str:
        rounded = max(100, round(self.lines, -2))
        return f"| `{self.name}/` | {self.purpose} | {self.files} | {rounded} | {', '.join(self.imports)} |\n"


def folders() -> list[Folder]:
    """The folders that the contract of layers names, the highest first."""
    return [_read(ROOT / "celeriac" / name) for name in _order() if (ROOT / "celeriac" / name).is_dir()]


def written() -> dict[str, tuple[int, int, tuple[str, ...]]]:
    """What the page says: by folder its files, lines and imports."""
    rows = re.findall(r"^\| `(\w+)/` \| .* \| (\d+) \| (\d+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    return {
        name: (int(files), int(lines), tuple(filter(None, arrows.split(", ")))) for name, files, lines, arrows in rows
    }


def _order() -> Iterator[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    for layer in layers:
        yield from (name.strip().removeprefix("celeriac.") for name in layer.split("|"))


def _read(folder: Path) -> Folder:
    files = sorted(folder.rglob("*.py"))
    purpose = (ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or "").partition("\n")[0]
    imports = {other for file in files for other in _imported(file)} - {folder.name}
    lines = sum(len(file.read_text().splitlines()) for file in folder.rglob("*") if file.suffix in (".py", ".sql"))
    known = [name for name in _order() if name in imports]
    return Folder(folder.name, purpose, len(files), lines, tuple(known))


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("celeriac"):
            _, *parts = (node.module or "").split(".")
            yield from parts[:1] or (alias.name for alias in node.names)


if __name__ == "__main__":
    PAGE.write_text(INTRODUCTION + "".join(folder.row() for folder in folders()))
