"""The role: what kind of work a task is, declared once, where its handler is."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal

from celeriac.errors import BadArguments, ConfigurationError
from celeriac.retries import Backoff

#: The name of a handler's parameter, a format of several ("{platform}:{store_id}"), or a function of the arguments.
Key = str | Callable[[Mapping[str, Any]], object]

FOREVER: Literal["forever"] = "forever"


def days(n: float) -> timedelta:
    """For `keep=days(30)`."""
    return timedelta(days=n)


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """The whole configuration of one kind of work. Durations are seconds unless they are timedeltas.

    `fair_by`, `lock_by`, `unique_by` say how the handler's arguments give the account, the entity lock and the unique
    key (see `Key`; only a function cannot be used from other code bases). `window` bounds how many tasks are claimed
    or running at once. `every` is how often beat's pass runs; `eager` dispatches after each enqueue and settle, too.
    `chunk` is the rows per ticket: a number, or "auto" (measured: about `chunk_target` seconds of work a ticket).
    `max_tries` rounds of `max_retries` + 1 attempts, `round_delay` apart. `keep` is how long a finished row stays:
    a timedelta, `FOREVER`, or None (gone with its success; a failed row stays until it is retried or removed).
    `by_name` stores positional arguments under their parameters' names, so that SQL can ask for them.
    """

    name: str
    queue: str = ""
    fair_by: Key | None = None
    lock_by: Key | None = None
    unique_by: Key | None = None
    priority: int = 0
    batch_size: int = 1000
    window: int = 2000
    every: float = 30.0
    eager: bool = True
    chunk: int | Literal["auto"] = "auto"
    chunk_target: float = 0.2
    max_retries: int | None = 3
    max_tries: int = 1
    round_delay: float = 0.0
    retry_for: tuple[type[BaseException], ...] = ()
    dont_retry_for: tuple[type[BaseException], ...] = ()
    backoff: Backoff | None = None
    timeout: float | None = None
    hard_timeout: float | None = None
    stale_after: float = 600.0
    max_losses: int = 3
    keep: timedelta | Literal["forever"] | None = timedelta(days=1)
    enabled_by: str | None = None
    by_name: bool = True

    def __post_init__(self) -> None:
        for bad, says in _complaints(self):
            if bad:
                raise ConfigurationError(f"role {self.name!r}: {says}")
        if not self.queue:
            object.__setattr__(self, "queue", self.name)

    def enabled(self, environ: Mapping[str, str] | None = None) -> bool:
        """False only if `enabled_by` names a variable that is set to false, 0, no or off."""
        given = os.environ if environ is None else environ
        return given.get(self.enabled_by or "", "true").strip().lower() not in ("false", "0", "no", "off")

    def definition(self) -> dict[str, Any]:
        """What other code bases need to enqueue by name, and surfaces to explain it; stored in `roles`."""
        keep = self.keep.total_seconds() if isinstance(self.keep, timedelta) else self.keep
        plain = (
            "queue",
            "priority",
            "batch_size",
            "window",
            "every",
            "eager",
            "chunk",
            "max_retries",
            "max_tries",
        )
        more = ("round_delay", "timeout", "hard_timeout", "stale_after", "max_losses", "enabled_by")
        keys = {name: _registered(getattr(self, name)) for name in ("fair_by", "lock_by", "unique_by")}
        backoff = None
        if self.backoff:
            jitter = self.backoff.jitter
            backoff = {"base": self.backoff.base, "maximum": self.backoff.maximum, "jitter": jitter}
        return {name: getattr(self, name) for name in plain + more} | keys | {"keep": keep, "backoff": backoff}


#: Stands in a registered definition for a key that only the declaring code can derive.
IN_CODE = "<in code>"


def _registered(key: Key | None) -> str | None:
    return IN_CODE if callable(key) else key


def _complaints(role: Role) -> list[tuple[bool, str]]:
    return [
        (not role.name or len(role.name) > 200, "its name must have 1 to 200 characters"),
        (
            not -1_000_000 <= role.priority <= 1_000_000,
            f"priority={role.priority}: give -1,000,000 to 1,000,000",
        ),
        (role.batch_size < 1, f"batch_size={role.batch_size}: give at least 1 row a pass"),
        (role.window < 1, f"window={role.window}: give at least 1 task at once"),
        (role.every <= 0, f"every={role.every}: give seconds above 0"),
        (role.chunk != "auto" and role.chunk < 1, f"chunk={role.chunk}: give 'auto' or at least 1 row"),
        (
            role.max_retries is not None and role.max_retries < 0,
            f"max_retries={role.max_retries}: give 0 or more",
        ),
        (role.max_tries < 1, f"max_tries={role.max_tries}: give at least 1 round"),
        (role.timeout is not None and role.timeout <= 0, f"timeout={role.timeout}: give seconds above 0"),
        (role.stale_after <= 0, f"stale_after={role.stale_after}: give seconds above 0"),
        (role.max_losses < 1, f"max_losses={role.max_losses}: give at least 1"),
    ]


#: Options of `@app.task` that are ours; Celery's own retry names are translated to the Role's.
OPTIONS = frozenset(f.name for f in fields(Role)) - {
    "name",
    "queue",
    "retry_for",
    "dont_retry_for",
    "backoff",
}
RETRY_OPTIONS = frozenset(
    {"autoretry_for", "dont_autoretry_for", "max_retries", "retry_kwargs"}
    | {"retry_backoff", "retry_backoff_max", "retry_jitter"}
)
CELERY_OPTIONS = frozenset(
    {
        "name",
        "bind",
        "base",
        "queue",
        "rate_limit",
        "time_limit",
        "soft_time_limit",
        "ignore_result",
        "serializer",
    }
    | {
        "default_retry_delay",
        "track_started",
        "acks_late",
        "throws",
        "expires",
        "typing",
        "shared",
        "lazy",
        "filter",
    }
    | {"store_errors_even_if_ignored", "reject_on_worker_lost", "acks_on_failure_or_timeout", "send_events"}
    | {
        "compression",
        "Strategy",
        "Request",
        "abstract",
        "trail",
        "resultrepr_maxsize",
        "pydantic",
        "exchange",
    }
    | {
        "routing_key",
        "pydantic_strict",
        "pydantic_context",
        "pydantic_dump_kwargs",
        "delivery_mode",
        "mandatory",
    }
)


def refuse_unknown_option(option: str, role: str) -> None:
    """Raises ConfigurationError that suggests the right spelling."""
    known = sorted(OPTIONS | RETRY_OPTIONS | CELERY_OPTIONS | {"role"})
    close = difflib.get_close_matches(option, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(known)}"
    raise ConfigurationError(f"role {role!r}: there is no option {option!r}; {hint}")


class Signature:
    """A handler's parameters without `self`: binds positional arguments to their names."""

    def __init__(self, parameters: list[inspect.Parameter], *, role: str) -> None:
        self.role = role
        self.inner = inspect.Signature(parameters)
        self.names = [p.name for p in parameters]
        kinds = {p.kind for p in parameters}
        self.nameable = not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY}

    @classmethod
    def of(cls, handler: Callable[..., Any], *, role: str) -> Signature:
        return cls(list(inspect.signature(handler).parameters.values()), role=role)

    @classmethod
    def from_description(cls, parameters: list[dict[str, Any]], *, role: str) -> Signature:
        return cls([_parameter(**p) for p in parameters], role=role)

    def describe(self) -> list[dict[str, Any]]:
        """For `roles.parameters`. A default that JSON cannot hold is told as null."""
        return [_description(p) for p in self.inner.parameters.values()]

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments by name, defaults included. Raises BadArguments."""
        try:
            bound = self.inner.bind(*args, **kwargs)
        except TypeError as error:
            raise BadArguments(f"{self.role}{self.inner}: {error}; nothing was enqueued") from None
        bound.apply_defaults()
        return bound.arguments


def _description(parameter: inspect.Parameter) -> dict[str, Any]:
    described: dict[str, Any] = {"name": parameter.name, "kind": parameter.kind.name}
    if parameter.default is not inspect.Parameter.empty:
        plain = isinstance(parameter.default, str | int | float | bool)
        described["default"] = parameter.default if plain else None
    return described


def _parameter(name: str, kind: str, **default: Any) -> inspect.Parameter:
    empty = inspect.Parameter.empty
    return inspect.Parameter(name, getattr(inspect.Parameter, kind), default=default.get("default", empty))


def key_of(key: Key | None, arguments: Mapping[str, Any], role: str) -> str | None:
    """The key's text for these arguments, or None where there is none."""
    if key is None:
        return None
    if callable(key):
        value = key(arguments)
        return None if value is None else str(value)
    try:
        return key.format_map(arguments) if "{" in key else _text(arguments[key])
    except (KeyError, IndexError, ValueError):
        raise BadArguments(f"{role}: the arguments give no key {key!r}; nothing was enqueued") from None


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def lock_of(key: Key | None, arguments: Mapping[str, Any], role: str) -> str | None:
    """As `key_of`; a bare parameter's name becomes part of the key, as locks hold across roles."""
    value = key_of(key, arguments, role)
    bare = isinstance(key, str) and "{" not in key
    return f"{key}:{value}" if bare and value is not None else value
