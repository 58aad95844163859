"""Celery's schedules (`beat_schedule`, `add_periodic_task`) as entries of the timetable.

As in Celery, an entry enqueues a task even if its last one has not finished, and one run makes up for all missed ones.
An entry that cannot be kept is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from celery.app.utils import Settings as Configuration
from celery.beat import ScheduleEntry
from celery.schedules import crontab, schedule, solar

from celeriac.enqueue.calls import CELERYS
from celeriac.errors import ConfigurationError
from celeriac.roles.bounds import LONGEST_NAME, Rule, is_duration
from celeriac.roles.declare import Roles
from celeriac.roles.routes import queue_of_key
from celeriac.schedules.arguments import kept
from celeriac.schedules.decide import CALL_OPTIONS, Entry, every

#: Parts of an entry in stock Celery.
_PARTS = {"task", "schedule", "args", "kwargs", "options", "relative"}

#: Options of a call that no schedule can have, as they belong to a single task.
_ONCE = {"task_id", "eta", "link", "link_error", "chain", "chord", "group_id", "session", "connection"}

_KINDS = "give seconds, a timedelta, a crontab, a solar or an expression such as '@every 5m'"


def entries(conf: Configuration, roles: Roles) -> Iterator[Entry]:
    """Yield the entries. Raises ConfigurationError naming the entry."""
    listed = conf.beat_schedule or {}
    if not isinstance(listed, Mapping):
        raise ConfigurationError(f"beat_schedule={listed!r:.100}: give a dict of entries by name")
    for name, entry in listed.items():
        said = _said(name, entry)
        try:
            yield _entry(conf, roles, _short(str(name)), said)
        except (ConfigurationError, ValueError, TypeError) as error:
            raise ConfigurationError(f"beat_schedule[{str(name)!r:.100}]: {error}") from error


def entry(conf: Configuration, roles: Roles, name: str, said: Mapping[str, Any]) -> Entry:
    """Return the entry for one that is written as in `beat_schedule`. Raises ConfigurationError, ValueError,
    TypeError.
    """
    return _entry(conf, roles, _short(name), said)


def original(conf: Configuration, name: str) -> Mapping[str, Any] | None:
    """Return the entry of `beat_schedule` from which the schedule of this name was made."""
    listed = conf.beat_schedule or {}
    return next((_said(said, entry) for said, entry in listed.items() if _short(str(said)) == name), None)


def _said(name: Any, entry: Any) -> Mapping[str, Any]:
    if isinstance(entry, ScheduleEntry):
        return {part: getattr(entry, part) for part in ("task", "schedule", "args", "kwargs", "options")}
    if not isinstance(entry, Mapping):
        parts = ", ".join(sorted(_PARTS))
        raise ConfigurationError(f"beat_schedule[{str(name)!r:.100}]={entry!r:.100}: give a dict of {parts}")
    return entry


def _short(name: str) -> str:
    """Shorten a name: one that Celery makes of a call may be long."""
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 12]}… {sha256(name.encode()).hexdigest()[:10]}"


def _entry(conf: Configuration, roles: Roles, name: str, said: Mapping[str, Any]) -> Entry:
    if unknown := sorted(map(str, said.keys() - _PARTS)):
        raise ConfigurationError(f"there is no {unknown[0]!r}; an entry says {', '.join(sorted(_PARTS))}")
    role, args, keywords, options = (_part(said, part) for part in _TYPES)
    kwargs, positional = _arguments(roles, role, tuple(args), dict(keywords))
    of_each = _options(conf, roles, role, options) | ({"args": list(positional)} if positional else {})
    return Entry(
        name=name, kind="task", target=role, kwargs=kept(kwargs), options=kept(of_each),
        priority=roles.priorities.turned(options.get("priority")),
        **_when(conf, said.get("schedule"), bool(said.get("relative"))),
    )  # fmt: skip


def _part(said: Mapping[str, Any], part: str) -> Any:
    value, (fits, right) = said.get(part), _TYPES[part]
    if value is None and part != "task":
        return {}
    if not fits(value):
        raise ConfigurationError(f"{part}={value!r:.100}: give {right}")
    return value


def _is_by_name(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


#: The type of each part of an entry, and its description.
_TYPES: Mapping[str, Rule] = {
    "task": Rule(lambda value: isinstance(value, str) and bool(value), "the name of a task"),
    "args": Rule(lambda value: isinstance(value, list | tuple), "a list or a tuple"),
    "kwargs": Rule(_is_by_name, "a dict by name"),
    "options": Rule(_is_by_name, "a dict by name"),
}


def _arguments(
    roles: Roles, role: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return arguments by name if the handler's names are known, so that an operator can change one."""
    declared = roles.get(role)
    if not args or declared is None or not declared.signature.nameable or len(args) > len(declared.signature.names):
        return kwargs, args
    named = dict(zip(declared.signature.names, args, strict=False))
    return (kwargs, args) if named.keys() & kwargs.keys() else (named | kwargs, ())


def _options(conf: Configuration, roles: Roles, role: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a row keeps. Those that only concern a message have no effect, as in a call."""
    if refused := sorted(options.keys() & _ONCE):
        raise ConfigurationError(f"options[{refused[0]!r}] is of a single task; a schedule cannot have it")
    if unknown := sorted(options.keys() - CELERYS - CALL_OPTIONS.keys() - {"priority"}):
        raise ConfigurationError(f"options: a call has no option {unknown[0]!r}")
    key = options.get("routing_key")
    declared, queue = roles.get(role), options.get("queue") or queue_of_key(conf, key, options.get("exchange")) or key
    others = declared.role.queues[1:] if declared else ()
    if declared and queue not in (None, declared.role.queue, declared.role.name, conf.task_default_queue, *others):
        raise ConfigurationError(
            f"options: its queue is {declared.role.queue!r}, set where the role is declared; not {queue!r}"
        )
    is_named = queue in others or (declared is None and queue not in (None, conf.task_default_queue))
    own = {**options, "queue": queue if is_named else None}
    said = {option: _plain(own[option]) for option in CALL_OPTIONS if own.get(option) is not None}
    limit = options.get("soft_time_limit") or options.get("time_limit")
    return said | ({"timeout": limit} if limit and "timeout" not in said else {})


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.isoformat() if isinstance(value, datetime) else value


# -- when --------------------------------------------------------------------------------------------------------------


def _when(conf: Configuration, when: Any, relative: bool) -> dict[str, Any]:
    once: dict[str, Any] = {"overlap": "allow", "misfire_grace": 0.0}
    if when is None:
        raise ConfigurationError(f"it has no schedule; {_KINDS}")
    if isinstance(when, str):
        return once | {"cron_expression": when, "timezone": _timezone(conf)}
    if isinstance(when, int | float | timedelta) and not isinstance(when, bool):
        when = schedule(when, relative=relative)
    if getattr(when, "nowfun", None) is not None:
        raise ConfigurationError("a nowfun cannot be kept: instants are of the database's clock")
    convert = _CONVERTED.get(type(when))
    if convert is None:
        raise ConfigurationError(f"a schedule of the kind {type(when).__qualname__} cannot be kept; {_KINDS}")
    return once | convert(conf, when)


def _period(conf: Configuration, period: Any) -> dict[str, Any]:
    seconds = period.run_every.total_seconds()
    if period.relative:
        return {"cron_expression": _rounded(seconds), "timezone": _timezone(conf)}
    return {"cron_expression": every(seconds)}


def _rounded(seconds: float) -> str:
    """Return the pattern for `relative`: at the full second, minute, hour or day of the app's time zone."""
    for unit, most, expression in (
        (86_400, 1, "0 0 * * *"), (3600, 24, "0 */{} * * *"), (60, 60, "*/{} * * * *"), (1, 60, "*/{} * * * * *"),
    ):  # fmt: skip
        count, rest = divmod(seconds, unit)
        if not rest and count and most % count == 0:
            return expression.format(int(count)).replace("*/1 ", "* ")
    raise ConfigurationError(f"every {seconds:g} s cannot be rounded (relative=True): give a crontab")


_FIELDS = (("minute", 60), ("hour", 24), ("day_of_month", 31), ("month_of_year", 12), ("day_of_week", 7))


def _crontab(conf: Configuration, cron: Any) -> dict[str, Any]:
    both = "&" if _is_said(cron.day_of_month, 31) and _is_said(cron.day_of_week, 7) else ""
    *others, weekday = (_field(getattr(cron, part), getattr(cron, f"_orig_{part}"), most) for part, most in _FIELDS)
    deadline = conf.beat_cron_starting_deadline
    if deadline is not None and not is_duration(deadline):
        raise ConfigurationError(f"beat_cron_starting_deadline={deadline!r}: give seconds, or None")
    late = {} if deadline is None else {"misfire": "skip", "misfire_grace": max(1.0, float(deadline))}
    return {"cron_expression": " ".join([*others, both + weekday]), "timezone": _timezone(conf)} | late


def _is_said(values: Collection[int], most: int) -> bool:
    return len(values) < most


def _field(values: Collection[int], written: Any, most: int) -> str:
    """Return a plain step as written, else the matching values: Celery's ranges may wrap around."""
    if not _is_said(values, most):
        return "*"
    if isinstance(written, str) and written.startswith("*/") and written[2:].isdigit():
        return written
    return ",".join(_ranges(sorted(values)))


def _ranges(numbers: list[int]) -> Iterator[str]:
    first = last = numbers[0]
    for number in [*numbers[1:], None]:
        if number is not None and number == last + 1:
            last = number
            continue
        yield str(first) if first == last else f"{first}-{last}"
        first = last = number if number is not None else last


def _solar(_: Configuration, sun: Any) -> dict[str, Any]:
    return {"cron_expression": f"@solar {sun.event} {sun.lat:g} {sun.lon:g}"}


def _timezone(conf: Configuration) -> str:
    said = conf.timezone
    if said:
        return str(getattr(said, "key", said))
    if not conf.enable_utc:
        raise ConfigurationError("enable_utc=False means this machine's time zone: give timezone='Europe/Berlin'")
    return "UTC"


_CONVERTED: Mapping[type, Callable[[Configuration, Any], dict[str, Any]]] = {
    schedule: _period, crontab: _crontab, solar: _solar,
}  # fmt: skip
