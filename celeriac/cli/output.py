"""What commands print: text for people, one JSON value for programs."""

from __future__ import annotations

import getpass
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any

import click

_WANTED = "celeriac.json"


def json_option() -> click.Option:
    def remember(context: click.Context, _: click.Parameter, given: bool) -> None:
        context.meta[_WANTED] = given or context.meta.get(_WANTED, False)

    return click.Option(
        ["--json"], is_flag=True, expose_value=False, callback=remember, help="One JSON value instead of text."
    )


def as_json() -> bool:
    return bool(click.get_current_context().meta.get(_WANTED))


def tell(value: Any, lines: str | Iterable[str]) -> None:
    """The value for programs, or the lines for people."""
    if as_json():
        click.echo(json.dumps(value, default=_plain, ensure_ascii=False))
        return
    for line in [lines] if isinstance(lines, str) else lines:
        click.echo(line)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """A line each, below the columns' names."""
    cells = [[c.replace("_", " ") for c in columns], *([cell(row.get(c)) for c in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()


def cell(value: Any) -> str:
    """In a line, and not too long."""
    if value is None or value == "":
        return "-"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, float):
        return f"{value:.1f}"
    text = json.dumps(value, default=_plain, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:59]}…"


def age(seconds: float | None) -> str:
    """As people say it, from two of a unit on: 40 s, 12 min, 5 h, 3 d."""
    if seconds is None:
        return "-"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


@contextmanager
def progress(length: int, label: str) -> Iterator[Any]:
    """A bar on stderr, where somebody looks at it."""
    made: Any = click.progressbar
    with made(length=length, label=label, file=sys.stderr) as bar:
        yield bar


def by() -> str:
    """Who operates: the name that events and the audit trail get."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"cli:{os.getuid()}"
