"""Keys: derive the account, the lock key and the unique key from a handler's arguments."""

from __future__ import annotations

import hmac
import inspect
import re
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from celeriac.errors import BadArguments

#: A key: the name of a handler's parameter, a format of several ("{platform}:{store_id}"), or a function of the
#: arguments.
Key = str | Callable[[Mapping[str, Any]], object]

#: Types of values that are, or may contain, a mapping or a set.
_NESTED = (dict, list, tuple, set, frozenset)

#: `unique_by=ONE`: the role has at most one unfinished task. A format without a parameter, so that SQL derives it, too.
ONE: Literal["{{one}}"] = "{{one}}"


@dataclass(frozen=True)
class Hashed:
    """A key that no surface shows: `unique_by=Hashed("card")`. Its text is the HMAC-SHA-256 of the key that `key`
    derives.

    `salt` has to be the same wherever the role is enqueued; without one, somebody can find a guessable value by trying.
    """

    key: Key
    salt: str = ""

    def __call__(self, arguments: Mapping[str, Any]) -> str | None:
        value = key_of(self.key, arguments, "a hashed key")
        return None if value is None else hmac.new(self.salt.encode(), value.encode(), "sha256").hexdigest()


def is_key(value: Any) -> bool:
    if isinstance(value, Hashed):
        return value.key is not None and is_key(value.key)
    if value is None or callable(value):
        return not inspect.iscoroutinefunction(value)
    try:
        names = names_in(value)
        return bool(names) and all(map(str.isidentifier, names))
    except (ValueError, TypeError):
        return False


def names_in(key: str) -> list[str]:
    """Return the parameters a key is made of. Raises ValueError for a broken format."""
    return list(_fields(key)) if "{" in key else [key]


def parts_of(key: str) -> set[str]:
    """Return all names in the key: parameters, and keys and attributes within their values."""
    return {part for field in _whole_fields(key) for part in re.split(r"[.\[\]]", field)} if "{" in key else {key}


def _fields(text: str) -> Iterator[str]:
    yield from (re.split(r"[.\[]", field, maxsplit=1)[0] for field in _whole_fields(text))


def _whole_fields(text: str) -> Iterator[str]:
    for _, name, spec, conversion in string.Formatter().parse(text):
        if conversion not in (None, "r", "s", "a"):
            raise ValueError(f"unknown conversion {conversion!r}")
        if name is not None:
            yield name
            yield from _whole_fields(spec or "")


def key_of(key: Key | None, arguments: Mapping[str, Any], role: str) -> str | None:
    """Return the key's text for these arguments, or None if there is none; the order of a mapping does not matter."""
    if key is None:
        return None
    if any(isinstance(value, _NESTED) for value in arguments.values()):
        arguments = {name: _in_order(value) for name, value in arguments.items()}
    if callable(key):
        value = key(arguments)
        return _text(_in_order(value))
    try:
        return key.format_map(arguments) if "{" in key else _text(arguments[key])
    except (KeyError, IndexError, ValueError, TypeError, AttributeError):
        raise BadArguments(f"{role}: the arguments give no key {key!r}; nothing was enqueued") from None


def _in_order(value: Any) -> Any:
    """Return the value with mappings ordered by their keys and sets as sorted lists, however deep."""
    if isinstance(value, dict):
        return {name: _in_order(value[name]) for name in sorted(value, key=lambda name: (str(type(name)), str(name)))}
    if isinstance(value, set | frozenset):
        return sorted((_in_order(one) for one in value), key=repr)
    return type(value)(map(_in_order, value)) if type(value) in (list, tuple) else value


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def lock_of(key: Key | None, arguments: Mapping[str, Any], role: str) -> str | None:
    """Return the lock key. A bare parameter's name becomes part of it, because locks hold across roles."""
    value = key_of(key, arguments, role)
    bare = isinstance(key, str) and "{" not in key
    return f"{key}:{value}" if bare and value is not None else value
