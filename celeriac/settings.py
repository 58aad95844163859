"""Settings: read from the environment once, validated at once.

The store workers' variables keep their names (`WORKER_…`, `MAX_CONCURRENT_TASKS`, `…_INTERVAL_MS`, `…BACKOFF_…`); the
rest are `CELERIAC_…`. `DATABASE_URL` and `REDIS_URL` left out mean the embedded stack.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from celeriac.errors import ConfigurationError

DAY = 86_400.0

#: The levels of remote control, which anybody who can write to Redis may use: each includes those before it.
OFF, LOOK, ACT, STORE = REMOTE = ("off", "look", "act", "store")

#: The value of `REDIS_URL` for an installation without Redis.
NO_REDIS = "none"

#: The fewest characters of a key.
SHORTEST_KEY = 16

#: A command that prints what is typed in the form it has to be written in.
QUOTING = """python3 -c "from urllib.parse import quote; print(quote(input(), ''))\""""

_SPECIAL = ", ".join(f"{character} as {quote(character, '')}" for character in "%@:/?#[];")

HOW_TO_WRITE = f"in user and password write {_SPECIAL}; `{QUOTING}` does"


def _period(variable: str, default: float, low: float) -> float:
    """Declare a setting in seconds, up to a day; its variable has milliseconds."""
    metadata = {"variable": variable, "low": low, "high": DAY, "unit": "milliseconds", "scale": 0.001, "whole": False}
    return field(default=default, metadata=metadata)


def _setting(variable: str, default: float, low: float, high: float, unit: str, *, whole: bool = False) -> float:
    metadata = {"variable": variable, "low": low, "high": high, "unit": unit, "scale": 1.0, "whole": whole}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings. All durations are seconds here, whatever unit their variable has."""

    database_url: str | None = None
    redis_url: str | None = None
    # The Sentinels' name of the master, if `REDIS_URL` names Sentinels.
    redis_master: str | None = None
    worker_id: str | None = None
    worker_role: str | None = None
    log_format: str = "text"
    # True if enqueues and runs are reported to OpenTelemetry.
    otel: bool = False
    remote_control: str = ACT
    # The key with which remote control above the level `look` has to be signed; None: with nothing.
    remote_control_key: str | None = None
    # The addresses to which alerts are sent. Both may contain a password.
    alert_webhook: str | None = None
    alert_mail: str | None = None
    alert_mail_from: str | None = None
    alert_mail_to: str | None = None
    # The address where a worker or a beat serves its own figures; None: nowhere.
    metrics_address: str | None = None
    # The address of Flower that the dashboard links to.
    flower_url: str | None = None

    heartbeat_interval: float = _period("HEARTBEAT_INTERVAL_MS", 30.0, 0.05)
    poll_interval: float = _period("POLL_INTERVAL_MS", 1.0, 0.01)
    backoff_duration: float = _period("BACKOFF_DURATION_MS", 10.0, 0.05)
    memory_backoff: float = _setting("MEMORY_BACKOFF_THRESHOLD", 0.85, 0.01, 1.0, "share of the limit; 1: never")
    cpu_backoff: float = _setting("CPU_BACKOFF_THRESHOLD", 0.9, 0.01, 1.0, "share of the limit; 1: never")
    max_concurrent_tasks: float = _setting("MAX_CONCURRENT_TASKS", 3, 1, 10_000, "tasks", whole=True)
    memory_limit_mb: float = _setting("CELERIAC_MEMORY_LIMIT_MB", 0, 0, 2**40, "megabytes; 0: as found", whole=True)
    ticket_grace: float = _period("CELERIAC_TICKET_GRACE_MS", 60.0, 0.05)
    sweep_interval: float = _period("CELERIAC_SWEEP_INTERVAL_MS", 30.0, 0.05)
    master_interval: float = _period("CELERIAC_MASTER_INTERVAL_MS", 310.0, 0.05)
    aging_after: float = _period("CELERIAC_AGING_AFTER_MS", 3600.0, 0.0)
    aging_interval: float = _period("CELERIAC_AGING_INTERVAL_MS", 300.0, 0.001)
    aging_step: float = _setting("CELERIAC_AGING_STEP", 10, 1, 100, "points", whole=True)
    # Users request priorities from 50 on; a ceiling of 100 lets old work outrank them.
    aging_ceiling: float = _setting("CELERIAC_AGING_CEILING", 49, -1_000_000, 100, "a priority", whole=True)
    drain_grace: float = _period("CELERIAC_DRAIN_GRACE_MS", 25.0, 0.0)
    time_limit_grace: float = _period("CELERIAC_TIME_LIMIT_GRACE_MS", 5.0, 0.0)
    events_per_second: float = _setting("CELERIAC_EVENTS_PER_SECOND", 1000, 0, 1e6, "tasks a second and process")
    # Postgres' JSONB holds no more than 256 MB.
    max_argument_bytes: float = _setting("CELERIAC_MAX_ARGUMENT_BYTES", 262_144, 1, 2**28 - 1, "bytes", whole=True)
    # Limits of the API: requests a second for each token, and a minute for each address without a valid one.
    api_requests: float = _setting("CELERIAC_API_REQUESTS_PER_SECOND", 50, 0.1, 1e6, "requests a second")
    api_failures: float = _setting("CELERIAC_API_FAILURES_PER_MINUTE", 60, 1, 1e9, "requests a minute")
    api_body_bytes: float = _setting("CELERIAC_API_BODY_BYTES", 1_048_576, 1024, 2**28 - 1, "bytes", whole=True)
    # Seconds between two polls of the plain queues, which other Celery apps write to; 0: they are not polled.
    adopt_interval: float = _period("CELERIAC_ADOPT_INTERVAL_MS", 0.1, 0.0)
    dead_letter_days: float = _setting("CELERIAC_DEAD_LETTER_DAYS", 30.0, 0.0, 36_500, "days")
    event_days: float = _setting("CELERIAC_EVENT_DAYS", 30.0, 0.0, 36_500, "days")
    pass_hours: float = _setting("CELERIAC_PASS_HOURS", 24.0, 0.0, 876_000, "hours")
    alert_queue_depth: float = _setting("CELERIAC_ALERT_QUEUE_DEPTH", 1000, 0, 2**53 - 1, "tasks", whole=True)
    alert_failed_rate: float = _setting("CELERIAC_ALERT_FAILED_RATE", 0.1, 0.0, 1.0, "share of what finished")
    alert_running: float = _period("CELERIAC_ALERT_RUNNING_MS", 3600.0, 0.0)
    alert_schedule_grace: float = _period("CELERIAC_ALERT_SCHEDULE_GRACE_MS", 300.0, 0.0)
    alert_dead_letters: float = _setting("CELERIAC_ALERT_DEAD_LETTERS", 0, 0, 1_000, "dead letters", whole=True)
    alert_beat: float = _period("CELERIAC_ALERT_BEAT_MS", 60.0, 0.0)
    alert_heartbeat: float = _period("CELERIAC_ALERT_HEARTBEAT_MS", 120.0, 0.0)
    alert_wait: float = _period("CELERIAC_ALERT_WAIT_MS", 3600.0, 0.0)
    alert_lost_tickets: float = _setting("CELERIAC_ALERT_LOST_TICKETS", 100, 0, 10_000, "tasks", whole=True)
    alert_transaction: float = _period("CELERIAC_ALERT_TRANSACTION_MS", 600.0, 0.0)
    # Seconds that an enqueue waits for Postgres' answer.
    enqueue_timeout: float = _period("CELERIAC_ENQUEUE_TIMEOUT_MS", 10.0, 0.1)
    # Maximum number of a process's coroutines that have a connection for `self.session` at once; the others wait for
    # one.
    async_sessions: float = _setting("CELERIAC_ASYNC_SESSIONS", 20, 1, 10_000, "connections", whole=True)
    deployment: float = _setting("CELERIAC_DEPLOYMENT", 0, 0, 2**53 - 1, "it grows with each deployment", whole=True)

    @property
    def has_redis(self) -> bool:
        """Return whether there is a Redis: with `REDIS_URL=none` there is none."""
        return self.redis_url != NO_REDIS

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the settings. Raises ConfigurationError naming the variable, its value and what would be right."""
        variables = os.environ if environ is None else environ
        numeric = [f for f in fields(cls) if f.metadata and variables.get(f.metadata["variable"])]
        more: dict[str, Any] = {f.name: _number(f.metadata, variables) for f in numeric} | _alert_addresses(variables)
        return cls(
            database_url=variables.get("DATABASE_URL") or None,
            redis_url=variables.get("REDIS_URL") or None,
            redis_master=variables.get("CELERIAC_REDIS_MASTER") or None,
            worker_id=variables.get("WORKER_ID") or None,
            worker_role=variables.get("WORKER_ROLE") or None,
            log_format=_log_format(variables.get("CELERIAC_LOG_FORMAT") or "text"),
            otel=_otel(variables),
            remote_control=_remote_control(variables.get("CELERIAC_REMOTE_CONTROL") or ACT),
            remote_control_key=_remote_control_key(variables.get("CELERIAC_REMOTE_CONTROL_KEY") or None),
            metrics_address=_checked_address(variables.get("CELERIAC_METRICS_ADDRESS") or None),
            flower_url=_flower_url(variables.get("CELERIAC_FLOWER_URL") or None),
            **more,
        )


def _log_format(value: str) -> str:
    if value not in ("text", "json"):
        raise ConfigurationError(f"CELERIAC_LOG_FORMAT={value!r} is not usable: give text or json")
    return value


def _remote_control(value: str) -> str:
    if value not in REMOTE:
        raise ConfigurationError(f"CELERIAC_REMOTE_CONTROL={value!r} is not usable: give {', '.join(REMOTE)}")
    return value


def _remote_control_key(value: str | None) -> str | None:
    if value is not None and len(value) < SHORTEST_KEY:
        raise ConfigurationError(
            f"CELERIAC_REMOTE_CONTROL_KEY is not usable: give {SHORTEST_KEY} characters or more, the same everywhere; "
            "`openssl rand -hex 32` makes one"
        )
    return value


def _otel(variables: Mapping[str, str]) -> bool:
    otel = is_on("CELERIAC_OTEL", variables, default=False)
    if otel and not _is_installed("opentelemetry.sdk"):
        raise ConfigurationError("CELERIAC_OTEL=true needs OpenTelemetry: pip install 'celeriac[otel]'")
    return otel


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _alert_addresses(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return where alerts are sent."""
    to = {name: environ.get(f"CELERIAC_{name.upper()}") or None for name in ("alert_webhook", "alert_mail")}
    for name, schemes in (("alert_webhook", ("http", "https")), ("alert_mail", ("smtp", "smtps", "smtp+starttls"))):
        if not _is_address(to[name], schemes):
            right = " or ".join(f"{scheme}://…" for scheme in schemes)
            raise ConfigurationError(
                f"CELERIAC_{name.upper()} is not usable: give {right}, with a host; {HOW_TO_WRITE}"
            )
    if to["alert_mail"] and _logs_in_openly(urlsplit(to["alert_mail"])):
        raise ConfigurationError(
            "CELERIAC_ALERT_MAIL is not usable: its password would go without TLS; give smtps://… or smtp+starttls://…"
        )
    of_mail = {name: environ.get(f"CELERIAC_{name.upper()}") or None for name in ("alert_mail_from", "alert_mail_to")}
    for name, said in of_mail.items():
        if (to["alert_mail"] and "@" not in (said or "")) or not (said or " ").isprintable():
            variable = f"CELERIAC_{name.upper()}"
            raise ConfigurationError(f"{variable}={said!r} is not usable: give an address, as ops@example.com")
    return to | of_mail


def _logs_in_openly(url: SplitResult) -> bool:
    """Return whether the password can be read on the way to the mail server."""
    return url.scheme == "smtp" and bool(url.username) and url.hostname not in ("localhost", "127.0.0.1", "::1")


def _flower_url(url: str | None) -> str | None:
    if not _is_address(url, ("http", "https")):
        raise ConfigurationError("CELERIAC_FLOWER_URL is not usable: give http://… or https://…, with a host")
    return url


def _is_address(address: str | None, schemes: tuple[str, ...]) -> bool:
    if address is None:
        return True
    try:
        url = urlsplit(address)
        is_there = url.scheme in schemes and bool(url.hostname) and url.port != 0
        # A mail server's address ends with its port: anything after that was part of a password.
        is_whole = url.scheme.startswith("http") or "@" not in url.path + url.query + url.fragment
        return is_there and is_whole and address.isascii() and " " not in address
    except ValueError:
        return False


def _checked_address(address: str | None) -> str | None:
    if address is not None:
        host_and_port(address)
    return address


def host_and_port(address: str) -> tuple[str, int]:
    """Parse `9808` or `0.0.0.0:9808`. Raises ConfigurationError."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigurationError(f"CELERIAC_METRICS_ADDRESS={address!r} is not usable: give a port, or host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


def _number(meta: Mapping[str, Any], environ: Mapping[str, str]) -> float:
    text, scale = environ[meta["variable"]], meta["scale"]
    try:
        value = float(text) * scale
    except ValueError:
        value = float("nan")
    if not meta["low"] <= value <= meta["high"] or (meta["whole"] and not value.is_integer()):
        right = f"{'whole ' if meta['whole'] else ''}number, at least {meta['low'] / scale:g}"
        right += f" and at most {meta['high'] / scale:.16g} ({meta['unit']})"
        raise ConfigurationError(f"{meta['variable']}={text!r} is not usable: give a {right}")
    return value


#: The values of a switch, in upper or lower case.
SWITCH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def is_on(variable: str | None, environ: Mapping[str, str] | None = None, *, default: bool = True) -> bool:
    """Return whether this environment variable is on, in upper or lower case; the default if it is unset or empty.

    Raises ConfigurationError for any other value.
    """
    value = (os.environ if environ is None else environ).get(variable or "", "")
    said = value.strip().lower()
    if said and said not in SWITCH:
        raise ConfigurationError(
            f"{variable}={value!r} is not usable: give true or false (also 1, 0, yes, no, on, off)"
        )
    return SWITCH.get(said, default)
