"""Sensitive arguments: the parts of a call that no surface shows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celeriac.store.encoding import legible
from celeriac.store.redact import HIDDEN, Secrets


@dataclass(frozen=True, slots=True)
class Sensitive:
    """A role's sensitive `names`: parameters, or keys within their values. `parameters`: the handler's, in order.

    An argument beyond the parameters is named by its place, from 1 on.
    """

    names: frozenset[str]
    parameters: tuple[str, ...] = ()

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments as they may be shown."""
        return self.args(args), {name: self._shown(name, value) for name, value in kwargs.items()}

    def args(self, args: Sequence[Any]) -> list[Any]:
        """Return positional arguments as they may be shown."""
        return [self._shown(self._name(place), value) for place, value in enumerate(args)]

    def within(self, value: Any) -> Any:
        """Return a JSON value (keyword arguments or a result) with the values under these names hidden."""
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
            yield from self._hidden(self._name(place), value)
        yield from self._hidden(None, kwargs)

    def _name(self, place: int) -> str:
        return self.parameters[place] if place < len(self.parameters) else str(place + 1)

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
    """An iterable of values that several threads may read at once, which an iterator does not allow."""

    read: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.read()


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(inner)
    else:
        yield value


def kept(fields: Mapping[str, Any], was: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a form that shows hidden values as hidden; where one comes back unchanged, it gets its old
    value.
    """
    return {name: _kept(value, was[name]) if name in was else value for name, value in fields.items()}


def _kept(value: Any, was: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(was, Mapping):
        return kept(value, was)
    if isinstance(value, list) and isinstance(was, list) and len(value) == len(was):
        return [_kept(one, other) for one, other in zip(value, was, strict=True)]
    return was if value == HIDDEN else value


def of(names: Collection[str] | None, parameters: Sequence[str] = ()) -> Sensitive | None:
    """Return the sensitive parts of a call; None if there are none."""
    return Sensitive(frozenset(names), tuple(parameters)) if names else None
