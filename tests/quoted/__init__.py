"""What the five documents write to be run, word for word, in blocks beside this file: SQL, requests, calls of a shell.

Tests run what they find here, so that what is quoted is run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent

DOCUMENTS = tuple(sorted(path.stem for path in HERE.glob("*.md")))

_BLOCK = re.compile(r"^```(\w+)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)

#: What the documents call the API by, and a line that is a comment.
SERVER, _COMMENT = "http://localhost:6002", re.compile(r"^[ \t]*(#|--) .*\n?", re.MULTILINE)


class Request(NamedTuple):
    """`path` as it is written, with `{id}` and `<status>` in it. `body`: None, or JSON."""

    method: str
    path: str
    body: str | None


def blocks(language: str, *documents: str) -> list[str]:
    """Those of a language, in all documents or in these."""
    found = [_BLOCK.findall((HERE / f"{name}.md").read_text()) for name in documents or DOCUMENTS]
    return [text for of_document in found for name, text in of_document if name == language]


def statements() -> list[str]:
    """Each statement of SQL, with the comments that it has."""
    pieces = (re.findall(r"(?:.*?[^-])?;(?: *--.*)?", block, re.DOTALL) for block in blocks("sql"))
    return [piece.strip() for of_block in pieces for piece in of_block]


def statement(words: str) -> str:
    """The one that has these words."""
    (found,) = (one for one in statements() if words in one)
    return found


def is_of_schema(statement: str) -> bool:
    """Whether it makes a table or an index: here the application's migrations do."""
    return statement.startswith("CREATE ")


def columns() -> dict[str, list[str]]:
    """The columns of each table that they make, by its name."""
    tables = [one for one in statements() if one.startswith("CREATE TABLE ")]
    names = {re.findall(r"\w+", table)[2]: table.partition("(\n")[2] for table in tables}
    return {name: re.findall(r"^  (\w+) ", body, re.MULTILINE) for name, body in names.items()}


def requests(*documents: str) -> list[Request]:
    """Each request that they write as method and path, of all documents or of these."""
    return [_request(_COMMENT.sub("", block)) for block in blocks("http", *documents)]


def _request(text: str) -> Request:
    head, _, body = text.partition("\n\n")
    method, path = head.splitlines()[0].split()
    return Request(method, path.removeprefix(SERVER), body or None)


def curls() -> list[str]:
    """Each command of a shell that calls `curl`, in their order."""
    commands = (_COMMENT.sub("", block).strip().split("\n\n") for block in blocks("bash"))
    return [command.strip() for of_block in commands for command in of_block if command.strip().startswith("curl ")]


def objects() -> list[dict[str, Any]]:
    """What each call in JavaScript is given, as JSON has it."""
    return [_object(block) for block in blocks("js")]


def _object(text: str) -> dict[str, Any]:
    inner = re.sub(r"new Date\((.*?)\)", r"\1", text[text.index("{") : text.rindex("}") + 1]).replace("'", '"')
    named = re.sub(r"^(\s*)(\w+):", r'\1"\2":', inner, flags=re.MULTILINE)
    given: dict[str, Any] = json.loads(re.sub(r",(\s*\})", r"\1", named))
    return given
