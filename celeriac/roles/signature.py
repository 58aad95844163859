"""A handler's parameters: calls of any code base are bound to them before anything is written."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from celeriac.errors import BadArguments


class Signature:
    """A handler's parameters without `self`: binds positional arguments to their names.

    `lenient`: a call that does not fit is accepted and fails when it runs.
    """

    lenient = False

    def __init__(self, parameters: list[inspect.Parameter], *, role: str) -> None:
        self.role = role
        self.inner = inspect.Signature(parameters)
        self.names = [p.name for p in parameters]
        self.kinds = [(p.name, p.kind.name) for p in parameters]
        self.positional = {p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_ONLY}
        kinds = {p.kind for p in parameters}
        self.is_plain = kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
        self.nameable = not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY}

    @classmethod
    def of(cls, handler: Callable[..., Any], *, role: str, bound: bool = False) -> Signature:
        """Return a handler's signature. `bound`: its first parameter is `self`."""
        return cls(list(inspect.signature(handler).parameters.values())[int(bound) :], role=role)

    @classmethod
    def from_description(cls, parameters: list[dict[str, Any]], *, role: str) -> Signature:
        return cls([_parameter(**p) for p in parameters], role=role)

    def describe(self) -> list[dict[str, Any]]:
        """Return the description for `roles.parameters`. A default that is no plain JSON value becomes null."""
        return [_description(p) for p in self.inner.parameters.values()]

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments by name, defaults included. Raises BadArguments."""
        if not kwargs and len(args) == len(self.names) and self.is_plain:
            return dict(zip(self.names, args, strict=True))
        try:
            # Since Python 3.13 such a name goes to `**kwargs`, which a row with arguments by name cannot express.
            if named := sorted(self.positional & kwargs.keys()):
                raise TypeError(f"{', '.join(named)}: positional only, but passed as a keyword")
            bound = self.inner.bind(*args, **kwargs)
        except TypeError as error:
            raise BadArguments(f"{self.role}{self.inner}: {error}; nothing was enqueued") from None
        bound.apply_defaults()
        return bound.arguments


def _description(parameter: inspect.Parameter) -> dict[str, Any]:
    described: dict[str, Any] = {"name": parameter.name, "kind": parameter.kind.name}
    if parameter.default is not inspect.Parameter.empty:
        described["default"] = parameter.default if _is_plain(parameter.default) else None
    return described


def _is_plain(default: object) -> bool:
    """Return whether it is plain JSON: Postgres' has no NaN, no infinity, no NUL and no half of a surrogate pair."""
    if isinstance(default, str):
        return "\x00" not in default and not any("\ud800" <= c <= "\udfff" for c in default)
    return isinstance(default, int) or (isinstance(default, float) and math.isfinite(default))


def _parameter(name: str, kind: str, **default: Any) -> inspect.Parameter:
    empty = inspect.Parameter.empty
    return inspect.Parameter(name, getattr(inspect.Parameter, kind), default=default.get("default", empty))
