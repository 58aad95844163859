"""Which options `@app.task` takes, and what is said of one that does not exist."""

from __future__ import annotations

import difflib
from dataclasses import fields

from celeriac.errors import ConfigurationError
from celeriac.roles.keys import names_in
from celeriac.roles.role import Role
from celeriac.roles.signature import Signature

#: Options of `@app.task` that are ours; Celery's own retry names are translated to the Role's.
OPTIONS = frozenset(f.name for f in fields(Role)) - {"name", "queue", "retry_for", "dont_retry_for", "backoff"}
RETRY_OPTIONS = frozenset({
    "autoretry_for", "dont_autoretry_for", "max_retries", "retry_kwargs", "retry_backoff", "retry_backoff_max",
    "retry_jitter",
})  # fmt: skip
CELERY_OPTIONS = frozenset({
    "name", "bind", "base", "queue", "rate_limit", "time_limit", "soft_time_limit", "ignore_result",
    "serializer", "default_retry_delay", "track_started", "acks_late", "throws", "expires", "typing", "shared",
    "lazy", "filter", "store_errors_even_if_ignored", "reject_on_worker_lost", "acks_on_failure_or_timeout",
    "send_events", "compression", "Strategy", "Request", "abstract", "trail", "resultrepr_maxsize", "pydantic",
    "exchange", "routing_key", "pydantic_strict", "pydantic_context", "pydantic_dump_kwargs", "delivery_mode",
    "mandatory",
})  # fmt: skip


def refuse_unknown_option(option: str, role: str) -> None:
    """Raises ConfigurationError that suggests the right spelling."""
    known = sorted(OPTIONS | RETRY_OPTIONS | CELERY_OPTIONS | {"role"})
    raise ConfigurationError(f"role {role!r}: there is no option {option!r}; {nearest(option, known)}")


def nearest(name: str, known: list[str], *, told: list[str] | None = None) -> str:
    """The right spelling, or what there is: `told`, where not all that is known is worth telling."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(told or known)}"


def refuse_unknown_parameters(role: Role, signature: Signature) -> None:
    """Raises ConfigurationError if a key is made of what the handler does not take."""
    for option in ("fair_by", "lock_by", "unique_by"):
        key = getattr(role, option)
        for name in names_in(key) if isinstance(key, str) else ():
            if name not in signature.names:
                hint = nearest(name, signature.names)
                raise ConfigurationError(f"role {role.name!r}: {option}={key!r}: the handler takes no {name!r}; {hint}")
