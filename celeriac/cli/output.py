"""Output of commands: text for people, one JSON value for programs.

Accounts, keys and errors are texts by others. Characters that control a terminal or the direction of writing are
shown as escapes, so everything is printed by `say`, `ask` or `tell`.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any

import click

from celeriac.doctor.findings import age as age
from celeriac.insights import Count

_WANTED = "celeriac.json"

#: Controls (C0, DEL, C1), line and paragraph separators, characters that turn or hide text (bidirectional, zero width,
#: tags), and halves of surrogate pairs. Not the tab, nor the two joiners that scripts and emoji need.
_UNSAFE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)


def json_option() -> click.Option:
    def remember(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.meta[_WANTED] = value or context.meta.get(_WANTED, False)

    return click.Option(
        ["--json"], is_flag=True, expose_value=False, callback=remember, help="One JSON value instead of text."
    )


def as_json() -> bool:
    return bool(click.get_current_context().meta.get(_WANTED))


def tell(value: Any, lines: str | Iterable[str]) -> None:
    """Print the value for programs, or the lines for people."""
    if as_json():
        dumped = json.dumps(value, default=_plain, ensure_ascii=False)
        click.echo(_UNSAFE.sub(_as_in_json, dumped))
        return
    for line in [lines] if isinstance(lines, str) else lines:
        say(line)


def say(line: str, *, err: bool = False) -> None:
    """Print a line, escaped."""
    click.echo(safe(line), err=err)


def ask(question: str) -> None:
    """Ask for confirmation, and abort without it."""
    click.confirm(safe(question), abort=True, err=True)


def safe(text: str) -> str:
    """Return the text with unsafe characters as escapes."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


# Matches passwords in a URL: the part between the user's name and the host, or a parameter.
_PASSWORD = re.compile(r"(?<=:)(?!//).*(?=@)|(?<=password=)[^&]+")


def without_password(url: str) -> str:
    return _PASSWORD.sub("***", url)


def _as_in_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """Yield the columns' names and a line for each row."""
    cells = [[c.replace("_", " ") for c in columns], *([cell(row.get(c)) for c in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()


def cell(value: Any) -> str:
    """Format a value for a table: in one line, shortened."""
    if value is None or value == "":
        return "-"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, float):
        return f"{value:.1f}"
    text = json.dumps(value, default=_plain, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
    text = safe(" ".join(text.split()))
    return text if len(text) <= 60 else f"{text[:59]}…"


def count(n: Count) -> str:
    """Format a count: `50,000+` if counting stopped there."""
    return f"{n.n:,}" if n.exact else f"{n.n:,}+"


@contextmanager
def progress(length: int, label: str) -> Iterator[Any]:
    """Show a progress bar on stderr, if that is a terminal."""
    made: Any = click.progressbar
    with made(length=length, label=label, file=sys.stderr) as bar:
        yield bar


def by() -> str:
    """Return the operator's name for events and the audit trail, which no environment variable can change."""
    try:
        return f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"cli:{os.getuid()}"
