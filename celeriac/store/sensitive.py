"""Sensitive arguments: the parts of a call that no surface shows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from celeriac.errors import BadValue
from celeriac.store.encoding import legible
from celeriac.store.redact import HIDDEN, Secrets

#: Kinds of parameters that take an argument by their name.
_BY_NAME: Final = frozenset({"POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY"})


#: A key of a sensitive value that is longer, or has a digit, is searched for in texts as its values are.
LONGEST_WORD: Final = 12


@dataclass(frozen=True, slots=True)
class Sensitive:
    """A role's sensitive `names`: parameters, or keys within their values.

    `parameters`: the handler's, in order. An argument beyond them is named by its place, from 1 on. `open_places`: if
    its `*args` is sensitive, how many places come before. `known`: if its `**kwargs` is, the names that are others.
    """

    names: frozenset[str]
    parameters: tuple[str, ...] = ()
    open_places: int | None = None
    known: frozenset[str] | None = None

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments as they may be shown."""
        return self.args(args), self.kwargs(kwargs)

    def args(self, args: Sequence[Any]) -> list[Any]:
        """Return positional arguments as they may be shown."""
        return [
            HIDDEN if self._is_of_others(place) else self._shown(self._name(place), value)
            for place, value in enumerate(args)
        ]

    def kwargs(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return keyword arguments as they may be shown."""
        return {name: HIDDEN if self._is_other(name) else self._shown(name, value) for name, value in kwargs.items()}

    def hides_results(self, headers: Any) -> bool:
        """Return whether a chord's body with these headers gets its members' results as a sensitive argument: they are
        no part of its row, by which its own result and progress could be searched.
        """
        canvas = headers.get("canvas") if isinstance(headers, Mapping) else None
        joins = canvas.get("joins") if isinstance(canvas, Mapping) else None
        return bool(joins) and (self._is_of_others(0) or (self._name(0) if joins is True else joins) in self.names)

    def within(self, value: Any) -> Any:
        """Return a JSON value, such as a result, with what is under one of the names hidden."""
        if isinstance(value, Mapping):
            return {name: self._shown(name, inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.within(inner) for inner in value]
        return value

    def values(self, args: Any, kwargs: Any) -> Secrets:
        """Return the sensitive values of a call, to be hidden in texts."""
        return Secrets(_Again(lambda: self._values(args if isinstance(args, list) else [], kwargs)))

    def _values(self, args: list[Any], kwargs: Any) -> Iterator[Any]:
        for place, value in enumerate(args):
            if self._is_of_others(place):
                yield from _leaves(legible(value))
            else:
                yield from self._hidden(self._name(place), value)
        for name, value in kwargs.items() if isinstance(kwargs, Mapping) else ():
            if self._is_other(name):
                yield from _leaves({name: legible(value)})
            else:
                yield from self._hidden(name, value)

    def _name(self, place: int) -> str:
        return self.parameters[place] if place < len(self.parameters) else str(place + 1)

    def _is_of_others(self, place: int) -> bool:
        return self.open_places is not None and place >= self.open_places

    def _is_other(self, name: str) -> bool:
        return self.known is not None and name not in self.known

    def _shown(self, name: object, value: Any) -> Any:
        return HIDDEN if name in self.names and value is not None else self.within(value)

    def _hidden(self, name: object, value: Any) -> Iterator[Any]:
        if name in self.names:
            yield from _leaves(legible(value))
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                yield from self._hidden(key, inner)
        elif isinstance(value, list | tuple):
            for inner in value:
                yield from self._hidden(None, inner)


@dataclass(frozen=True, slots=True)
class _Again:
    """Values that may be read by several threads at once, as an iterator may not."""

    read: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.read()


def _leaves(value: Any) -> Iterator[Any]:
    """Yield values, and keys that may be secrets themselves: those that are more than a word."""
    if isinstance(value, Mapping):
        yield from (key for key in map(str, value) if len(key) > LONGEST_WORD or any(map(str.isdigit, key)))
        value = [*value.values()]
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value


def without_masks(headers: Any) -> Any:
    """Return headers with what the call itself shows of its arguments hidden, for a role that has secrets: a stock
    sender describes tuples and the like with all their values, and a sender's masks may be of more than the secrets.
    """
    masks = dict.fromkeys(("argsrepr", "kwargsrepr"), HIDDEN)
    return {**headers, **masks} if isinstance(headers, Mapping) and masks.keys() & headers.keys() else headers


#: Stands for a value that was not there.
_NONE: Final = object()


def kept(fields: Mapping[str, Any], was: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields that somebody sent back as they were shown, with the old value where it was hidden. Raises BadValue
    where no old value stands in its place: the sign for it would become the secret.
    """
    return {name: _kept(value, was.get(name, _NONE), name) for name, value in fields.items()}


def _kept(value: Any, was: Any, where: str) -> Any:
    if isinstance(value, Mapping):
        old = was if isinstance(was, Mapping) else {}
        return {name: _kept(inner, old.get(name, _NONE), f"{where}.{name}") for name, inner in value.items()}
    if isinstance(value, list):
        is_alike = isinstance(was, list) and len(value) == len(was)
        values = zip(value, was, strict=True) if is_alike else ((inner, _NONE) for inner in value)
        return [_kept(inner, old, f"{where}[{place}]") for place, (inner, old) in enumerate(values)]
    if value != HIDDEN:
        return value
    if was is _NONE:
        raise BadValue(f"{where}: {HIDDEN} stands for a value that is hidden, and none stands there: give the value")
    return was


def of(names: Collection[str] | None, parameters: Iterable[tuple[str, str]] = ()) -> Sensitive | None:
    """Return what is sensitive; None if nothing is. `parameters`: the handler's, each with its kind, by the names that
    `inspect` has for kinds.
    """
    if not names:
        return None
    kinds = dict(parameters)
    collected = {kind: name for name, kind in kinds.items() if kind.startswith("VAR_")}
    places = sum(kind.startswith("POSITIONAL_") for kind in kinds.values())
    known = frozenset(name for name, kind in kinds.items() if kind in _BY_NAME)
    return Sensitive(
        frozenset(names), tuple(kinds), places if collected.get("VAR_POSITIONAL") in names else None,
        known if collected.get("VAR_KEYWORD") in names else None,
    )  # fmt: skip
