"""Arrays in the form that Postgres reads fastest: one text, not many expressions or JSON values."""

from __future__ import annotations

from collections.abc import Iterable


def array(numbers: Iterable[int]) -> str:
    """Return a `bigint[]` as text: `{1,2,3}`."""
    return f"{{{','.join(map(str, numbers))}}}"


def texts(strings: Iterable[str]) -> str:
    """Return a `text[]` as text: `{"a","b"}`."""
    return f"{{{','.join(map(_quoted, strings))}}}"


def _quoted(string: str) -> str:
    escaped = string.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
