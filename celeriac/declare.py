"""From `@app.task(…)`'s options to a Role, checked at import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from celery.app.task import Task as CeleryTask

from celeriac.errors import ConfigurationError
from celeriac.retries import Backoff
from celeriac.roles import CELERY_OPTIONS, OPTIONS, RETRY_OPTIONS, Role, Signature, refuse_unknown_option


@dataclass(frozen=True, slots=True)
class Declared:
    """A role with its handler's signature."""

    role: Role
    signature: Signature

    @classmethod
    def from_task(cls, task: CeleryTask) -> Declared:
        role = role_of(task.name, dict(getattr(task, "role_options", None) or {}), task)
        return cls(role, Signature.of(getattr(task, "_orig_run", task.run), role=role.name))

    def row(self) -> dict[str, Any]:
        """As `roles` holds it."""
        return {
            "role": self.role.name, "definition": self.role.definition(), "parameters": self.signature.describe()
        }  # fmt: skip


def declare(options: Mapping[str, Any]) -> dict[str, Any]:
    """Splits the decorator's options into Celery's and ours (`role_options`). Raises ConfigurationError."""
    ours = {k: v for k, v in options.items() if k in OPTIONS | RETRY_OPTIONS}
    celerys = {k: v for k, v in options.items() if k not in ours and k != "role"}
    name = options.get("role") or options.get("name")
    for option in celerys.keys() - CELERY_OPTIONS:
        refuse_unknown_option(option, str(name))
    ours["by_name"] = bool(options.get("role"))
    role_of(name or "unnamed", ours, None)
    given = {"name": name} if name else {}
    passed = {k: v for k, v in ours.items() if k in ("max_retries", "priority")}
    return celerys | given | passed | {"role_options": ours}


def role_of(name: str, options: dict[str, Any], task: CeleryTask | None) -> Role:
    """`task` supplies what Celery knows as attributes: time limits, its queue, its retry count."""
    plain = {k: v for k, v in options.items() if k in OPTIONS}
    if task is not None:
        plain.setdefault("max_retries", task.max_retries)
        plain.setdefault("timeout", task.soft_time_limit or task.time_limit)
        plain.setdefault("hard_timeout", task.time_limit)
        plain.setdefault("priority", getattr(task, "priority", None) or 0)
        plain["queue"] = getattr(task, "queue", None) or ""
    return Role(
        name=name,
        retry_for=_errors(name, "autoretry_for", options.get("autoretry_for", ())),
        dont_retry_for=_errors(name, "dont_autoretry_for", options.get("dont_autoretry_for", ())),
        backoff=_backoff(name, options),
        **plain,
    )


def _errors(role: str, option: str, given: Any) -> tuple[type[BaseException], ...]:
    errors = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not all(isinstance(e, type) and issubclass(e, BaseException) for e in errors):
        raise ConfigurationError(f"role {role!r}: {option}={given!r}: give a tuple of exception classes")
    return errors


def _backoff(role: str, options: Mapping[str, Any]) -> Backoff | None:
    base = options.get("retry_backoff", False)
    if base is False:
        return None
    maximum, jitter = options.get("retry_backoff_max", 600), options.get("retry_jitter", True)
    seconds = [v.total_seconds() if isinstance(v, timedelta) else v for v in (base, maximum)]
    if not all(isinstance(v, int | float) and v > 0 for v in seconds):
        raise ConfigurationError(f"role {role!r}: retry_backoff={base!r}, retry_backoff_max={maximum!r}: give seconds")
    if jitter is not True and not 0 <= float(jitter) <= 1:
        raise ConfigurationError(f"role {role!r}: retry_jitter={jitter!r}: give True, False or a fraction up to 1")
    return Backoff(base=float(seconds[0]), maximum=float(seconds[1]), jitter=jitter)
