"""Settings: read from the environment once, validated at once.

The names of the store workers' variables are theirs (`HEARTBEAT_INTERVAL_MS`, `POLL_INTERVAL_MS`); the rest are
`CELERIAC_…`. `DATABASE_URL` and `REDIS_URL` left out mean the embedded stack.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from celeriac.errors import ConfigurationError


def _setting(variable: str, default: float, low: float, unit: str, scale: float = 1.0) -> float:
    metadata = {"variable": variable, "low": low, "unit": unit, "scale": scale}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    """All durations are seconds here, whatever unit their variable has."""

    database_url: str | None = None
    redis_url: str | None = None
    worker_id: str | None = None

    heartbeat_interval: float = _setting("HEARTBEAT_INTERVAL_MS", 30.0, 0.05, "milliseconds", 0.001)
    poll_interval: float = _setting("POLL_INTERVAL_MS", 1.0, 0.01, "milliseconds", 0.001)
    ticket_grace: float = _setting("CELERIAC_TICKET_GRACE_MS", 60.0, 0.05, "milliseconds", 0.001)
    sweep_interval: float = _setting("CELERIAC_SWEEP_INTERVAL_MS", 30.0, 0.05, "milliseconds", 0.001)
    drain_grace: float = _setting("CELERIAC_DRAIN_GRACE_MS", 25.0, 0.0, "milliseconds", 0.001)
    time_limit_grace: float = _setting("CELERIAC_TIME_LIMIT_GRACE_MS", 5.0, 0.0, "milliseconds", 0.001)
    max_argument_bytes: float = _setting("CELERIAC_MAX_ARGUMENT_BYTES", 262_144, 1, "bytes")
    event_days: float = _setting("CELERIAC_EVENT_DAYS", 30.0, 0.0, "days")
    pass_hours: float = _setting("CELERIAC_PASS_HOURS", 24.0, 0.0, "hours")
    release: float = _setting("CELERIAC_RELEASE", 0, 0, "a whole number that grows with each deployment")

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Raises ConfigurationError naming the variable, its value and what would be right."""
        given = os.environ if environ is None else environ
        numeric = [f for f in fields(cls) if f.metadata and given.get(f.metadata["variable"])]
        numbers = {f.name: _number(f.metadata, given) for f in numeric}
        return cls(
            database_url=given.get("DATABASE_URL") or None,
            redis_url=given.get("REDIS_URL") or None,
            worker_id=given.get("WORKER_ID") or None,
            **numbers,
        )


def _number(meta: Mapping[str, object], environ: Mapping[str, str]) -> float:
    variable, unit = str(meta["variable"]), meta["unit"]
    low, scale = float(str(meta["low"])), float(str(meta["scale"]))
    try:
        value = float(environ[variable]) * scale
    except ValueError:
        value = float("nan")
    if not low <= value < float("inf"):
        raise ConfigurationError(
            f"{variable}={environ[variable]!r} is not usable: give a number, at least {low / scale:g} ({unit})"
        )
    return value
