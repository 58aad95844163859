"""Values as rows keep them: JSON, with dates and the like in kombu's notation."""

from __future__ import annotations

import json
import re
from typing import Any

from kombu.utils import json as kombu_json

#: How deep values may nest: a worker that reads them back may stand deep in its stack already.
DEEPEST = 100

#: What a handler leaves in its row, a result or its progress, takes this many bytes of JSON at most.
MOST_BYTES = 4 * 1024 * 1024

_decoder: Any = json.JSONDecoder()
_scan = _decoder.scan_once

_encoder = kombu_json.JSONEncoder(allow_nan=False)
_to_ascii = json.encoder.encode_basestring_ascii

# `JSONEncoder.encode` makes this anew for each value, which takes four times as long as a small one does to write. It
# keeps no notes of what it is within, so that threads may share it, and a circle is too deep for it.
_make_writer: Any = json.encoder.c_make_encoder  # type: ignore[attr-defined]
_write = _make_writer(None, _encoder.default, _to_ascii, None, ": ", ", ", False, False, False)

_SCALARS = frozenset({str, int, float, bool, type(None)})

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class Unfit(ValueError):
    """The message says what keeps the value from being stored."""


class TooLarge(Unfit):
    """It takes more bytes than the limit."""


def encoded(what: Any, limit: float) -> Any:
    """As JSON values, of at most `limit` bytes. Raises Unfit."""
    if what is None or what is True or what is False or (type(what) is int and -(2**63) <= what < 2**63):
        return what
    text = json_text(what)
    refuse_larger(size_of(text), limit)
    return json.loads(text)


def json_text(what: Any, *, within: int = 0) -> str:
    """As text that a JSON column takes, `within` so many levels of something larger. Raises Unfit."""
    deepest = DEEPEST - within
    try:
        text = _encode(what)
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


def _encode(what: Any) -> str:
    try:
        return "".join(_write(what, 0))
    except RecursionError:
        return _encoder.encode(what)  # raises what says whether it is a circle


def parsed(text: str) -> Any:
    """What Postgres says is JSON, and has put in order if it is `jsonb`: `json.loads` takes three times as long."""
    try:
        return _scan(text, 0)[0]
    except StopIteration:  # a `json` with blanks before it
        return json.loads(text)


def size_of(text: str) -> int:
    """Bytes of a text of `json_text` with its letters as they are, not as \\uXXXX."""
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
    """A mapping that only looks like one of kombu's dates would break every worker that reads it."""
    try:
        revived(value)
    except Exception as error:
        raise Unfit(f"'__type__' with '__value__' is kombu's notation, and this is none of it: {error!r}") from None


def revived(value: Any) -> Any:
    """The inverse of `encoded` for values that come from a JSONB column."""
    if not value:
        return value
    if isinstance(value, dict):
        return kombu_json.object_hook({k: revived(v) for k, v in value.items()})
    return [v if type(v) in _SCALARS else revived(v) for v in value] if isinstance(value, list) else value


def legible(value: Any) -> Any:
    """The same; as it stands where it has types that this process does not know."""
    try:
        return revived(value)
    except Exception:
        return value
