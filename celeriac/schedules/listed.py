"""The app's list of schedules, completed by defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from celeriac.errors import ConfigurationError
from celeriac.repair import SWEEPS
from celeriac.roles.declare import Roles
from celeriac.schedules import celerys as timetable
from celeriac.schedules.arguments import kept
from celeriac.schedules.decide import Entry, every, overridden, variable
from celeriac.seam.configuration import keeps_celerys
from celeriac.settings import is_on

if TYPE_CHECKING:
    from celeriac.app import Celeriac


def batcher(role: str, every: str | float | None = None, **options: Any) -> Callable[[Celeriac], Entry]:
    """List the pass of a role, at an expression or every so many seconds; by default as often as the role says."""

    def entry(app: Celeriac) -> Entry:
        declared = app.roles.get(role)
        if declared is None:
            raise ConfigurationError(f"a schedule names the role {role!r}, which no code declares")
        when = _expression(every or declared.role.every)
        fields = {"description": f"Dispatches {role}, fairly", "enabled": declared.role.enabled()} | options
        return _act(name=f"batcher {role}", kind="pass", target=role, cron_expression=when, **fields)

    return entry


def sweeping(name: str, every: str | float | None = None, **options: Any) -> Callable[[Celeriac], Entry]:
    """List a sweep, at an expression or every so many seconds; by default each CELERIAC_SWEEP_INTERVAL_MS.

    The review runs each CELERIAC_MASTER_INTERVAL_MS.
    """
    if name not in SWEEPS:
        raise ConfigurationError(f"there is no sweep {name!r}; there are: {', '.join(SWEEPS)}")

    def entry(app: Celeriac) -> Entry:
        usual = app.settings.master_interval if name == "review" else app.settings.sweep_interval
        when = _expression(every or usual)
        fields = {"description": (SWEEPS[name].__doc__ or "").partition("\n")[0]} | options
        return _act(name=f"sweep {name}", kind="sweep", target=name, cron_expression=when, **fields)

    return entry


def enqueuing(
    name: str, expression: str | float, role: str, kwargs: Mapping[str, Any] | None = None, *,
    enabled_by: str | None = None, **options: Any,
) -> Callable[[Celeriac], Entry]:  # fmt: skip
    """List a task of a role, at an expression or every so many seconds. `enabled_by` names a variable that switches it.

    `options`: `priority`, `timezone`, `misfire`, `misfire_grace`, `overlap`, `description`, `enabled`.
    """

    def entry(_: Celeriac) -> Entry:
        said = kept(dict(kwargs or {}), f"schedule {name!r}: ")
        fields: dict[str, Any] = {"kwargs": said, "enabled": is_on(enabled_by)} | options
        return Entry(name=name, kind="task", target=role, cron_expression=_expression(expression), **fields)

    return entry


def _act(**fields: Any) -> Entry:
    """Build the entry of a pass or sweep. One run of these makes up for all missed ones."""
    completed: dict[str, Any] = {"misfire": "once", "misfire_grace": 0.0} | fields
    return Entry(**completed)


def _expression(when: str | float) -> str:
    return when if isinstance(when, str) else every(when)


def _is_of_alias(roles: Roles, entry: Entry) -> bool:
    """Return whether it is the pass of a role's former name, which may share its variable with the role's own."""
    declared = roles.get(entry.target) if entry.kind == "pass" else None
    return declared is not None and declared.successor is not None


def entries(app: Celeriac, environ: Mapping[str, str] | None = None, *, celerys: bool = True) -> dict[str, Entry]:
    """Return the app's entries, and a default for each pass of a declared role and each sweep that it does not list,
    all checked.

    Celery's `beat_schedule` is left to another beat if the configuration names a scheduler that is none of ours, or if
    `celerys` is False. Raises ConfigurationError.
    """
    usual = [batcher(d.role.name)(app) for d in app.roles.all()] + [sweeping(name)(app) for name in SWEEPS]
    by_name = {entry.name: entry for entry in usual}
    for entry in _listed(app, celerys=celerys and bool(keeps_celerys(app.conf.beat_scheduler))):
        by_name[entry.name] = entry
    _refuse_shared({name: entry for name, entry in by_name.items() if not _is_of_alias(app.roles, entry)})
    variables = os.environ if environ is None else environ
    by_name = {name: replace(entry, **overridden(entry, variables)) for name, entry in by_name.items()}
    for entry in by_name.values():
        entry.check()
    return by_name


def _refuse_shared(names: Iterable[str]) -> None:
    """Raise ConfigurationError for two schedules whose names make the same variable, which cannot serve both."""
    named: dict[str, str] = {}
    for name in names:
        other = named.setdefault(variable(name), name)
        if other != name:
            raise ConfigurationError(
                f"schedules {other!r} and {name!r}: both would have the variable {variable(name)}; rename one of them"
            )


def _listed(app: Celeriac, *, celerys: bool) -> Iterator[Entry]:
    """Yield the beat config's entries, then Celery's. Raises ConfigurationError for a name that is given twice."""
    seen: set[str] = set()
    for entry in (*(make(app) for make in app.schedules), *(timetable.entries(app.conf, app.roles) if celerys else ())):
        if entry.name in seen:
            raise ConfigurationError(f"schedule {entry.name!r}: there are two of that name; give one of them another")
        seen.add(entry.name)
        yield entry
