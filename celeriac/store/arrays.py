"""Arrays as Postgres reads them quickest: as one text, not as so many expressions or JSON values."""

from __future__ import annotations

from collections.abc import Iterable


def array(numbers: Iterable[int]) -> str:
    """For what is a `bigint[]`: `{1,2,3}`."""
    return f"{{{','.join(map(str, numbers))}}}"


def texts(strings: Iterable[str]) -> str:
    """For what is a `text[]`: `{"a","b"}`."""
    return f"{{{','.join(map(_quoted, strings))}}}"


def _quoted(string: str) -> str:
    escaped = string.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
