"""Lists of tasks as files: CSV for spreadsheets, NDJSON for programs; written page by page, at any length."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from celeriac.insights.tasks.lists import MOST_ROWS, Page
from celeriac.insights.tasks.pages import COLUMNS

Kind = Literal["csv", "ndjson"]

#: Most tasks in a file.
MOST = 100_000

NAMES: Final = tuple(name.strip() for name in COLUMNS.split(","))

#: Characters that begin a formula in a spreadsheet (OWASP, CSV injection), in two widths; and separators of cells.
_SIGNS: Final = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")
_SEPARATORS: Final = frozenset(";|\t\r\n")

#: Characters that may stand between the beginning of a cell and a formula, and separators.
_BETWEEN = re.compile('[;|\\s"\ufeff\u200b]+')


def pages(read: Callable[[int, str | None], Page], *, most: int = MOST, after: str | None = None) -> Iterator[Page]:
    """Yield pages. `read` gets a number of tasks and the place to go on from."""
    left = most
    while left > 0:
        page = read(min(left, MOST_ROWS), after)
        yield page
        left, after = left - len(page.items), page.next
        if after is None:
            return


def lines(kind: Kind, list_pages: Iterable[Page], names: Sequence[str] = NAMES) -> Iterator[str]:
    """Yield the file's lines, with line ends. If the pages end before the list does, the last line says so."""
    if kind == "csv":
        yield _record(names)
    written, place = 0, None
    for page in list_pages:
        yield from (line(kind, one, names) for one in page.items)
        written, place = written + len(page.items), page.next
    if place is not None:
        yield note(kind, f"these are the newest {written:,}; there are more: narrow the filter")


def line(kind: Kind, one: Mapping[str, Any], names: Sequence[str] = NAMES) -> str:
    """Return the line of one task, or of another mapping with these names."""
    if kind == "csv":
        return _record([cell(one[name]) for name in names])
    return _json({name: one[name] for name in names})


def note(kind: Kind, message: str) -> str:
    """Return a note to the file's reader: a cell of its own, or an object that is no task."""
    return _record([f"# {message}"]) if kind == "csv" else _json({"note": message})


def cell(value: Any) -> str:
    """Return a cell's text; an apostrophe goes before what could be taken for a formula, and numbers stay numbers."""
    if value is None or isinstance(value, bool | int | float):
        return "" if value is None else str(value)
    text = value if isinstance(value, str) else _plain(value)
    shown = _BETWEEN.sub(_no_formula, text)
    return f"'{shown}" if text[:1] in _SIGNS or text[:1] in {"\t", "\r", "\n"} else shown


def _no_formula(between: re.Match[str]) -> str:
    follows = between.string[between.end() : between.end() + 1]
    begins = between.start() == 0 or not _SEPARATORS.isdisjoint(between[0])
    return f"{between[0]}'" if begins and follows in _SIGNS else between[0]


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else json.dumps(value, ensure_ascii=False, default=str)


def _record(cells: Iterable[str]) -> str:
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL).writerow(cells)
    return written.getvalue()


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, default=_plain).replace("\x7f", "\\u007f") + "\n"
