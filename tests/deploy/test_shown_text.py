"""Blocks of text: lines of the log are lines that the code writes, trees name what there is, the rest is a drawing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests import documents
from tests.deploy.written import BLOCKS, Block, commands, of
from tests.processes import ROOT

#: Run by tests/end_to_end/test_senders.py.
ELSEWHERE = of("docs/adopting.md", "text")

TEXT = [block for block in BLOCKS if block.language == "text" and block not in ELSEWHERE]

#: A drawing has arrows and lines of its own; nothing in it is to be typed.
ARROWS = re.compile(r"[─│┌┐└┘├┤┬┴]")

TREE = re.compile(r"^(?:\w+/ +)+\S", re.MULTILINE)

DRAWINGS = [block for block in TEXT if ARROWS.search(block.text)]
TREES = [block for block in TEXT if TREE.match(block.text)]
LOGS = [block for block in TEXT if re.match(r"\[TaskWorker\] |\w+: ", block.text)]

#: What a template has to say by itself: one of a few letters would take anything.
LETTERS = 10


@pytest.mark.parametrize("block", DRAWINGS, ids=lambda block: block.place)
def test_a_drawing_has_nothing_to_run(block: Block) -> None:
    assert commands(f"```console\n{block.text}```") == []


def test_the_drawing_of_the_rooms_has_each() -> None:
    (block,) = [block for block in DRAWINGS if block.page == ROOT / "docs" / "architecture.md"]
    rooms = {"tasks", "ready", "later", "behind", "parked", "tickets", "history"}
    assert rooms <= documents.sql().keys() & set(re.findall(r"\w+", block.text))


@pytest.mark.parametrize("block", TREES, ids=lambda block: block.place)
def test_a_tree_names_what_there_is(block: Block) -> None:
    named = list(places(block.text))
    assert len(named) > 100
    assert [place for place in named if not any(there(place))] == []


def places(tree: str) -> Iterator[str]:
    """Folders, files, and the modules that are listed of a folder, each by its path; a module without its suffix."""
    above = ""
    for line in tree.splitlines():
        found = re.match(r"( *)((?:\w+(?:/|\.py) )+) *(.*)", line)
        if found is None:
            continue
        names = [name.rstrip("/") for name in found[2].split()]
        if not found[1]:
            above = names[0]
        folders = names if not found[1] else [f"{above}/{name}" for name in names]
        yield from folders
        yield from (f"{folders[0]}/{name}" for name in modules(found[3]))
        yield from (f"{folders[0]}/{name}" for name in re.findall(r"(\w+)/(?= )", found[3]))


def modules(said: str) -> list[str]:
    """What is listed after a colon, or without any other word."""
    _, colon, after = said.rpartition(": ")
    listed = re.split(r"[,;] ", after)
    single = [name for name in listed if re.fullmatch(r"\w+", name)]
    return single if colon or single == listed else []


def there(place: str) -> Iterator[bool]:
    """As a file, a folder, a module, or one of SQL."""
    path = ROOT / place
    yield from (one.exists() for one in (path, path.with_suffix(".py"), path.with_suffix(".sql")))


@pytest.mark.parametrize("block", LOGS, ids=lambda block: block.place)
def test_a_line_of_the_log_is_one_that_the_code_writes(block: Block) -> None:
    assert [line for line in block.text.splitlines() if not is_written(line)] == []


def is_written(line: str) -> bool:
    """Few templates have their longest word in a line, and only those are compiled."""
    return any(re.fullmatch(template, line) for word, template in templates() if word in line)


@cache
def templates() -> list[tuple[str, str]]:
    """Of each text that is put together in the code: what it may come to, and its longest word."""
    sources = [path for folder in ("celeriac", "tasks") for path in (ROOT / folder).rglob("*.py")]
    nodes = [node for path in sources for node in ast.walk(ast.parse(path.read_text()))]
    made = {_pattern(node) for node in nodes if isinstance(node, ast.BinOp | ast.JoinedStr | ast.Constant)}
    told = ((re.sub(r"\(\?:.*\)", " ", one), one) for one in made)
    return [(_longest(said), one) for said, one in told if len(re.findall(r"[A-Za-z]", said)) >= LETTERS]


def _longest(template: str) -> str:
    """Of its words whose letters stand for themselves."""
    return max(re.findall(r"(?<!\\)\b[A-Za-z]+", template), key=len, default="")


def _pattern(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(said)):
            return re.sub(r"%[sdrf]", ".*", re.escape(said))
        case ast.JoinedStr(values=parts):
            return "".join(map(_pattern, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _pattern(left) + _pattern(right)
        case ast.IfExp(body=one, orelse=other):
            return f"(?:{_pattern(one)}|{_pattern(other)})"
    return ".*"


def test_a_line_that_nobody_writes_is_found() -> None:
    assert is_written("[TaskWorker] Task 7 completed successfully")
    assert not is_written("[TaskWorker] Task 7 completed well")
    assert not is_written("[TaskWorker] store-7:31 is backing off")
    assert not any(there("celeriac/no_such_module"))


def test_each_block_of_text_is_of_one_kind() -> None:
    assert sorted(DRAWINGS + TREES + LOGS) == sorted(TEXT)
