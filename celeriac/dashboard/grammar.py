"""Parse and write the search line, such as `state:failed role:crawl arg.store_id:17 error:"HTTP 502"`.

Only values with whitespace, quotes or backslashes need quotes, in which quotes and backslashes follow a backslash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from celeriac.insights import ARGUMENT


class BadQuery(ValueError):
    """The line is no filter. `at`: the place of the error."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True, slots=True)
class Term:
    """A term of the line, as `role:crawl`. `at`: the place of its value."""

    name: str
    value: str
    at: int


_NAME = re.compile(r"[^\s:\"\\]+")
_BARE = re.compile(r"[^\s\"\\]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_SPACE = re.compile(r"\s*")
_ESCAPED = re.compile(r"\\([\"\\])")


def parse(line: str, known: tuple[str, ...]) -> dict[str, Term]:
    """Return the terms by name, in the line's order. Raises BadQuery."""
    terms: dict[str, Term] = {}
    for begins, term in _terms(line):
        if term.name not in known and not is_argument(term.name):
            there = ", ".join((*known, f"{ARGUMENT}…"))
            raise BadQuery(f"{term.name!r:.50} is no filter; there are {there}", begins)
        if term.name in terms:
            raise BadQuery(f"{term.name} is given twice", begins)
        terms[term.name] = term
    return terms


def written(values: Mapping[str, str]) -> str:
    """Return the line for these values."""
    return " ".join(f"{name}:{_quoted(value)}" for name, value in values.items())


def _terms(line: str) -> Iterator[tuple[int, Term]]:
    at = _space(line, 0)
    while at < len(line):
        name = _NAME.match(line, at)
        if name is None or not line.startswith(":", name.end()):
            raise BadQuery("give name:value", at)
        begins = name.end() + 1
        value, end = _value(line, begins)
        yield at, Term(name[0], value, begins)
        at = _space(line, end)


def _value(line: str, at: int) -> tuple[str, int]:
    if line.startswith('"', at):
        quoted = _QUOTED.match(line, at)
        if quoted is None:
            raise BadQuery("this quote is not closed, or a backslash in it is not before a quote or a backslash", at)
        value, end = _ESCAPED.sub(r"\1", quoted[1]), quoted.end()
    else:
        bare = _BARE.match(line, at)
        value, end = (bare[0], bare.end()) if bare else ("", at)
    if not value:
        raise BadQuery("give a value, one with spaces in double quotes", at)
    if end < len(line) and not line[end].isspace():
        raise BadQuery("a value with quotes, backslashes or spaces stands in double quotes as a whole", end)
    return value, end


def _space(line: str, at: int) -> int:
    space = _SPACE.match(line, at)
    return space.end() if space else at


def is_argument(name: str) -> bool:
    """Return whether a filter of this name is for one of the handler's arguments."""
    return name.startswith(ARGUMENT) and len(name) > len(ARGUMENT)


def _quoted(value: str) -> str:
    if _BARE.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
