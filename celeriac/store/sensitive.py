"""Sensitive arguments: which of a call nobody is shown, and how their values are taken out of what is shown. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

#: Stands for what nobody is shown.
HIDDEN: Final = "•••"

#: Finds them in a text.
Values = re.Pattern[str]

#: A shorter value is no secret worth the name, and stands in texts that have nothing to do with it.
SHORTEST = 4


@dataclass(frozen=True, slots=True)
class Sensitive:
    """Of a role: `names` of parameters, or of keys within their values. `parameters`: the handler's, in order."""

    names: frozenset[str]
    parameters: tuple[str, ...] = ()

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Both, as they may be shown."""
        return self.args(args), {name: self._shown(name, value) for name, value in kwargs.items()}

    def args(self, args: Sequence[Any]) -> list[Any]:
        """Positional arguments as they may be shown."""
        return [self._shown(self._name(place), value) for place, value in enumerate(args)]

    def within(self, value: Any) -> Any:
        """The same of a JSON value, keyword arguments or a result: what stands under one of the names is hidden."""
        if isinstance(value, Mapping):
            return {name: self._shown(name, inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.within(inner) for inner in value]
        return value

    def values(self, args: Any, kwargs: Any) -> Values:
        """Where in a text the sensitive values of a call are, the longest first."""
        named = [(self._name(place), value) for place, value in enumerate(args)] if isinstance(args, list) else []
        texts = {text for name, value in named for text in self._hidden(name, value)} | set(self._hidden(None, kwargs))
        return re.compile("|".join(map(_quoted, sorted(texts, key=len, reverse=True))) or r"(?!)")

    def _name(self, place: int) -> str | None:
        return self.parameters[place] if place < len(self.parameters) else None

    def _shown(self, name: object, value: Any) -> Any:
        return HIDDEN if name in self.names and value is not None else self.within(value)

    def _hidden(self, name: object, value: Any) -> Iterator[str]:
        if name in self.names:
            yield from _texts(value)
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                yield from self._hidden(key, inner)
        elif isinstance(value, list | tuple):
            for inner in value:
                yield from self._hidden(None, inner)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    elif value is not None and not isinstance(value, bool) and len(str(value)) >= SHORTEST:
        yield str(value)


def _quoted(value: str) -> str:
    """Matches a value as it is, and as Python or JSON quote it, however often."""
    return "".join(
        _ESCAPED[c] if c in _ESCAPED else re.escape(c) if _is_plain(c) else rf"(?:{re.escape(c)}|{_CODE})"
        for c in value
    )


def _is_plain(character: str) -> bool:
    return " " <= character <= "~"


_ESCAPED = {"'": r"\\*'", '"': r'\\*"', "\\": r"\\+"}
_CODE = r"\\+(?:[abfnrtv0]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}(?:\\+u[0-9a-fA-F]{4})?|U[0-9a-fA-F]{8})"


def without(values: Values, value: Any) -> Any:
    """A text, or all texts of a JSON value, without these."""
    if isinstance(value, str):
        return values.sub(HIDDEN, value)
    if isinstance(value, Mapping):
        return {name: without(values, inner) for name, inner in value.items()}
    return [without(values, inner) for inner in value] if isinstance(value, list | tuple) else value


def kept(fields: Mapping[str, Any], was: Mapping[str, Any]) -> dict[str, Any]:
    """What somebody sends back as it was shown: where it was hidden, it stays as it was."""
    return {name: _kept(value, was[name]) if name in was else value for name, value in fields.items()}


def _kept(value: Any, was: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(was, Mapping):
        return kept(value, was)
    if isinstance(value, list) and isinstance(was, list) and len(value) == len(was):
        return [_kept(one, other) for one, other in zip(value, was, strict=True)]
    return was if value == HIDDEN else value


def of(names: Collection[str] | None, parameters: Sequence[str] = ()) -> Sensitive | None:
    """None where there is none."""
    return Sensitive(frozenset(names), tuple(parameters)) if names else None
