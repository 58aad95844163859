"""What a command in a hint is given is one argument to the shell, whoever has named it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ENGINE = Path(__file__).parents[2] / "celeriac"

#: What quotes for the shell (`celeriac.store.shell`).
QUOTED = re.compile(r"\b(word|argument)\(")

#: Parts of commands that are numbers, or names of the code's own.
PLAIN = {"app.main or 'tasks'", "new.main", "one.task", "head.id", "shape.first", "wheel"}


def unquoted(path: Path) -> Iterator[str]:
    """Parts of commands in backticks that are neither quoted nor plain."""
    written = path.read_text()
    if "`cel" not in written and "`pip" not in written:
        return
    tree = ast.parse(written)
    assigned = (node for node in ast.walk(tree) if isinstance(node, ast.Assign))
    quoted = {
        name.id for node in assigned if QUOTED.search(ast.unparse(node.value))
        for name in ast.walk(node.targets[0]) if isinstance(name, ast.Name)
    }  # fmt: skip
    for text in (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)):
        command, is_open = "", False
        for part in text.values:
            if isinstance(part, ast.Constant):
                first, *others = str(part.value).split("`")
                command += first
                for other in others:
                    command, is_open = other, not is_open
            elif isinstance(part, ast.FormattedValue) and is_open:
                name = ast.unparse(part.value)
                if is_of_a_shell(command) and not (QUOTED.match(name) or name in quoted | PLAIN):
                    yield f"{path.relative_to(ENGINE)}:{part.lineno}: {name} in `{command}"
                command += "…"


def is_of_a_shell(command: str) -> bool:
    return command.split(" ", maxsplit=1)[0] in ("celeriac", "celery", "pip", "--other")


def test_what_a_command_in_a_hint_is_given_is_quoted() -> None:
    assert [one for path in sorted(ENGINE.rglob("*.py")) for one in unquoted(path)] == []


def test_what_is_not_quoted_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.pure.test_hints.ENGINE", tmp_path)
    written = tmp_path / "hints.py"
    written.write_text(
        "role = argument(name)\n"
        "one = f'{name}: run `celeriac roles pause {role}` or `celeriac roles pause {name}`, {name}'\n"
        "two = f'run `celery worker -Q {queue}`, {queue}'\n"
    )
    assert [one.rpartition(": ")[2] for one in unquoted(written)] == [
        "name in `celeriac roles pause ", "queue in `celery worker -Q ",
    ]  # fmt: skip
