"""The options that `@app.task` takes, and the errors for one that does not exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import fields

from celeriac.errors import ConfigurationError
from celeriac.roles.keys import Hashed, names_in, parts_of
from celeriac.roles.role import Role
from celeriac.roles.signature import Signature

#: Our own options of `@app.task`; Celery's retry names are translated to the Role's.
OPTIONS = frozenset(f.name for f in fields(Role)) - {
    "name", "queue", "lane", "retry_for", "dont_retry_for", "backoff",
}  # fmt: skip
RETRY_OPTIONS = frozenset({
    "autoretry_for", "dont_autoretry_for", "max_retries", "retry_kwargs", "retry_backoff", "retry_backoff_max",
    "retry_jitter",
})  # fmt: skip
CELERY_OPTIONS = frozenset({
    "name", "bind", "base", "queue", "time_limit", "soft_time_limit", "ignore_result",
    "serializer", "default_retry_delay", "track_started", "acks_late", "throws", "expires", "typing", "shared",
    "lazy", "filter", "store_errors_even_if_ignored", "reject_on_worker_lost", "acks_on_failure_or_timeout",
    "send_events", "compression", "Strategy", "Request", "abstract", "trail", "resultrepr_maxsize", "pydantic",
    "exchange", "routing_key", "pydantic_strict", "pydantic_context", "pydantic_dump_kwargs", "delivery_mode",
    "mandatory",
})  # fmt: skip


#: Options that may be functions.
KEYS = ("fair_by", "lock_by", "unique_by")

#: Matches names of secrets by their end, but not `tokens`, which is usually a count.
_SECRET = re.compile(
    r"(^|_)(password|passwd|passphrase|pwd|secret|token|credentials?|(api|access|private|secret)_?key)$", re.IGNORECASE
)

#: How similar an option has to be to one of ours or of Celery's, and an attribute to one of ours, to count as misspelt.
#: Any other one is kept as an attribute of the task, as with Celery.
_OURS, _CELERYS, _ATTRIBUTE = 0.7, 0.85, 0.8


def refuse_misspelt(option: str, role: str) -> None:
    """Raise ConfigurationError for a misspelt option; any other name is an attribute of the task."""
    ours, celerys = OPTIONS | RETRY_OPTIONS | {"role"}, CELERY_OPTIONS
    if close := _close(option, ours, _OURS) or _close(option, celerys, _CELERYS):
        raise ConfigurationError(f"role {role!r}: there is no option {option!r}; did you mean {close!r}?")


def misspelt_attribute(name: str, task_class: str) -> None:
    """Raise ConfigurationError for a class's misspelt attribute. Ordinary words (`prompts`, `timeouts`) do not count as
    misspelt.
    """
    if close := _close(name, {each for each in OPTIONS | RETRY_OPTIONS if "_" in each}, _ATTRIBUTE):
        raise ConfigurationError(f"task class {task_class}: there is no option {name!r}; did you mean {close!r}?")


def _close(name: str, known: Collection[str], cutoff: float) -> str | None:
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1, cutoff=cutoff)), None)


def nearest(name: str, known: list[str], *, listed: list[str] | None = None) -> str:
    """Return a hint: the most similar known name, or else the list of names; `listed`: list these, not all known
    ones.
    """
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(listed or known)}"


def secrets_in(parameters: Collection[str]) -> list[str]:
    """Return the parameters whose names are those of secrets."""
    return [name for name in parameters if _SECRET.search(name)]


def refuse_sensitive_keys(role: Role) -> None:
    """Raise ConfigurationError if a key depends on a sensitive argument: every surface shows keys."""
    for option in KEYS:
        key = getattr(role, option)
        if shown := (parts_of(key) if isinstance(key, str) else set()) & set(role.sensitive or ()):
            raise ConfigurationError(
                f"role {role.name!r}: {option}={key!r}: every surface shows keys, so it may not be made of "
                f"{min(shown)!r}, which is sensitive; {option}=Hashed({key!r}) shows its hash"
            )


def refuse_unknown_parameters(role: Role, signature: Signature) -> None:
    """Raise ConfigurationError if a key names a parameter that the handler does not have."""
    for option in KEYS:
        key = getattr(role, option)
        key = key.key if isinstance(key, Hashed) else key
        for name in names_in(key) if isinstance(key, str) else ():
            if name not in signature.names:
                hint = nearest(name, signature.names)
                raise ConfigurationError(f"role {role.name!r}: {option}={key!r}: the handler takes no {name!r}; {hint}")
