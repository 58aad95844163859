"""Values as Postgres gets them: JSON for rows, with dates and the like in kombu's notation, and arrays for parameters.

An array goes as one text, which Postgres reads faster than many expressions or JSON values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from kombu.utils import json as kombu_json

#: How deep values may nest: a worker that reads them back may be deep in its stack already.
DEEPEST = 100

#: The most bytes of JSON that a handler may store in its row as a result or its progress.
MOST_BYTES = 4 * 1024 * 1024

_decoder: Any = json.JSONDecoder()
_scan = _decoder.scan_once

_encoder = kombu_json.JSONEncoder(allow_nan=False)
_to_ascii = json.encoder.encode_basestring_ascii

# `JSONEncoder.encode` makes this for each value, which takes four times as long as writing a small one. It keeps no
# state about the containers it is in, so that threads may share it, and a circular value ends in a RecursionError.
_make_writer: Any = json.encoder.c_make_encoder  # type: ignore[attr-defined]
_write = _make_writer(None, _encoder.default, _to_ascii, None, ": ", ", ", False, False, False)

_SCALARS = frozenset({str, int, float, bool, type(None)})

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class Unfit(ValueError):
    """A value cannot be stored; the message says why."""


class TooLarge(Unfit):
    """A value takes more bytes than the limit."""


def encoded(what: Any, limit: float) -> Any:
    """Return the value as JSON values, of at most `limit` bytes. Raises Unfit."""
    if what is None or what is True or what is False or (type(what) is int and -(2**63) <= what < 2**63):
        return what
    text = json_text(what)
    refuse_larger(size_of(text), limit)
    return json.loads(text)


def json_text(what: Any, *, within: int = 0) -> str:
    """Return the value as text for a JSON column, nested in `within` levels of something larger. Raises Unfit."""
    deepest = DEEPEST - within
    try:
        try:
            text = "".join(_write(what, 0))
        except RecursionError:
            text = _encoder.encode(what)  # its error says whether the value is circular
        if "\\ud" in text:  # half of a surrogate pair
            size_of(text)
        is_deep = text.count("[") + text.count("{") > deepest and _depth(json.loads(text)) > deepest
    except (TypeError, ValueError, RecursionError) as error:
        raise Unfit(f"not JSON: {error}") from None
    if is_deep:
        raise Unfit(f"nested more than {DEEPEST} levels deep")
    if '"__type__"' in text:
        _refuse_forged(json.loads(text))
    if "\\u0000" in text and _NUL.search(text):
        raise Unfit("a NUL character (\\u0000), which Postgres does not store")
    return text


def parsed(text: str) -> Any:
    """Parse what Postgres returned as JSON, which is well-formed: `json.loads` takes three times as long."""
    try:
        return _scan(text, 0)[0]
    except StopIteration:  # of type `json`, with leading blanks
        return json.loads(text)


def size_of(text: str) -> int:
    """Return how many bytes a text of `json_text` has with its letters as they are, not as \\uXXXX."""
    return len(json.dumps(json.loads(text), ensure_ascii=False).encode()) if "\\u" in text else len(text)


def refuse_larger(size: int, limit: float) -> None:
    if size > limit:
        raise TooLarge(f"{size} bytes, the limit is {limit:.0f}")


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [part for part in level if isinstance(part, dict | list)]:
        depth += 1
        level = [part for whole in level for part in (whole.values() if isinstance(whole, dict) else whole)]
    return depth


def _refuse_forged(value: Any) -> None:
    """Raise Unfit for a mapping that only looks like kombu's notation: it would break every worker that reads it."""
    try:
        revived(value)
    except Exception as error:
        raise Unfit(f"'__type__' with '__value__' is kombu's notation, and this is none of it: {error!r}") from None


def revived(value: Any) -> Any:
    """Return the values behind the JSON values of a JSONB column: the inverse of `encoded`."""
    if not value:
        return value
    if isinstance(value, dict):
        return kombu_json.object_hook({k: v if type(v) in _SCALARS else revived(v) for k, v in value.items()})
    return [v if type(v) in _SCALARS else revived(v) for v in value] if isinstance(value, list) else value


def legible(value: Any) -> Any:
    """Return `revived`, or the value as it is if it has types that this process does not know."""
    try:
        return revived(value)
    except Exception:
        return value


def array(numbers: Iterable[int]) -> str:
    """Return a `bigint[]` as text: `{1,2,3}`."""
    return f"{{{','.join(map(str, numbers))}}}"


def texts(strings: Iterable[str]) -> str:
    """Return a `text[]` as text: `{"a","b"}`."""
    return f"{{{','.join(map(_quoted_text, strings))}}}"


def _quoted_text(string: str) -> str:
    escaped = string.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
