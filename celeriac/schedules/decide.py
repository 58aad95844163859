"""Schedules as values: a declaration, and what a tick decides from it. Pure: gets `now`, returns a plan.

An instant that is more than the grace late is *missed*, which Quartz calls a misfire. Each instant in time runs once.
Missed ones are skipped (`skip`), made up for by one run (`once`), or by a run each (`all`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Literal

from celeriac.errors import ConfigurationError
from celeriac.roles.bounds import NAME
from celeriac.schedules.expressions import Expression, parse

Kind = Literal["task", "pass", "sweep"]

#: A tick takes at most so many instants of one schedule; the others are due at the next tick.
AT_ONCE = 1000

_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One schedule. `target` is the role of a task or a pass, or the sweep; `misfire_grace` is in seconds.

    `options`: the other options of each call (`CALL_OPTIONS`). `overlap`: whether a task is enqueued while the last one
    is unfinished. `priority` None: the role's own.
    """

    name: str
    kind: Kind
    target: str
    cron_expression: str
    timezone: str = "UTC"
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    enabled: bool = True
    priority: int | None = None
    misfire: Literal["skip", "once", "all"] = "once"
    misfire_grace: float = 60.0
    overlap: Literal["skip", "allow"] = "skip"
    description: str | None = None

    def check(self) -> None:
        """Check the values. Raises ConfigurationError with what is wrong and what would be right."""
        self.check_name()
        try:
            parse(self.cron_expression, self.timezone)
        except ConfigurationError as error:
            raise ConfigurationError(f"schedule {self.name!r}: {error}") from error
        for option, right in _CHOICES.items():
            if getattr(self, option) not in right:
                value = getattr(self, option)
                raise ConfigurationError(f"schedule {self.name!r}: {option}={value!r}: give one of {', '.join(right)}")
        if unknown := sorted(self.options.keys() - CALL_OPTIONS.keys()):
            known = ", ".join(CALL_OPTIONS)
            raise ConfigurationError(f"schedule {self.name!r}: options has no {unknown[0]!r}; there are {known}")
        if not 0 <= self.misfire_grace <= 365 * 86_400:
            raise ConfigurationError(f"schedule {self.name!r}: misfire_grace={self.misfire_grace}: give 0 s to a year")
        if self.misfire == "skip" and self.misfire_grace < 1:
            raise ConfigurationError(f"schedule {self.name!r}: with misfire='skip' give misfire_grace at least 1 s")

    def check_name(self) -> None:
        if not NAME.fits(self.name):
            raise ConfigurationError(f"schedule {self.name!r:.100}: give a name of {NAME.right}")

    def declared(self) -> dict[str, Any]:
        """Return the beat config's values of the fields that an operator may change."""
        return {name: _plain(getattr(self, name)) for name in CHANGEABLE}


_CHOICES = {"kind": ("task", "pass", "sweep"), "misfire": ("skip", "once", "all"), "overlap": ("skip", "allow")}

#: Options that a schedule may set for each call, with the name of each in a new task.
CALL_OPTIONS: Mapping[str, str] = {
    "args": "args", "account": "account", "lock_key": "lock_key", "unique_key": "unique_key", "timeout": "timeout",
    "max_retries": "max_retries", "countdown": "delay", "expires": "expires_in", "queue": "queue",
}  # fmt: skip

CHANGEABLE = tuple(f.name for f in fields(Entry) if f.name not in ("name", "kind", "target"))


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A row of `scheduled_jobs` as a tick takes it."""

    id: int
    name: str
    kind: Kind
    target: str
    kwargs: dict[str, Any]
    options: dict[str, Any]
    cron_expression: str
    timezone: str
    priority: int | None
    misfire: str
    misfire_grace: float
    overlap: str
    next_run_at: datetime
    last_run_at: datetime | None
    planned_as: str | None
    last_task_id: str | None

    @property
    def plan_key(self) -> str:
        """Return the value of `planned_as` for a `next_run_at` that follows from the row's present expression."""
        return f"{self.timezone}|{self.cron_expression}"


def call_of(options: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a schedule's positional arguments, and its other options as fields of a new task."""
    fields = {CALL_OPTIONS[option]: value for option, value in options.items()}
    if isinstance(fields.get("expires_in"), str):
        fields["expires_at"] = fields.pop("expires_in")
    return tuple(fields.pop("args", ())), fields


@dataclass(frozen=True, slots=True)
class Plan:
    """The instants to run now, oldest first; how many were left out; when the next one is."""

    next_run_at: datetime
    run: tuple[datetime, ...] = ()
    skipped: int = 0


def decide(job: PlannedJob, now: datetime) -> Plan:
    """Plan a schedule's instants. Raises BadExpression. A changed expression applies from `now`, the old one before."""
    expression = parse(job.cron_expression, job.timezone)
    if job.planned_as is None:
        return Plan(expression.first(now))
    if job.planned_as == job.plan_key:
        return _due(job, expression, now)
    fresh = expression.first(max(now, job.last_run_at or now))
    if job.next_run_at > now:
        return Plan(fresh)
    zone, _, before = job.planned_as.partition("|")
    due = _due(job, parse(before, zone), now)
    return Plan(fresh, due.run, due.skipped)


def _due(job: PlannedJob, expression: Expression, now: datetime) -> Plan:
    first, horizon = job.next_run_at, now - timedelta(seconds=job.misfire_grace)
    in_time = first if first >= horizon else expression.resume(first, horizon - _INSTANT)
    made_up, skipped = _missed(job, expression, in_time) if in_time > first else ([], 0)
    if len(made_up) == AT_ONCE:
        return Plan(expression.following(made_up[-1]), tuple(made_up), skipped)
    run = made_up + expression.instants(in_time, now, AT_ONCE - len(made_up))
    return Plan(expression.following(run[-1]) if run and run[-1] >= in_time else in_time, tuple(run), skipped)


def _missed(job: PlannedJob, expression: Expression, until: datetime) -> tuple[list[datetime], int]:
    """Return the missed instants, from `next_run_at` to `until`, that have to be made up for; and 1 if any were
    skipped.
    """
    if job.misfire == "all":
        return expression.instants(job.next_run_at, until - _INSTANT, AT_ONCE), 0
    return ([job.next_run_at], 0) if job.misfire == "once" else ([], 1)


def why_left_out(job: PlannedJob, due: Plan, plan: Plan) -> str | None:
    """Return why instants that were `due` are not in the `plan`; None if all are."""
    whys = [_no_beat(job)] if due.skipped else []
    if plan.skipped > due.skipped:
        whys.append(_overlap(job, plan))
    return "; ".join(whys) or None


def _no_beat(job: PlannedJob) -> str:
    return f"no beat ticked within {job.misfire_grace:g} s of the instant"


def _overlap(job: PlannedJob, plan: Plan) -> str:
    late = "one task stands for all that were due at once, as no beat had ticked"
    return late if plan.run else f"its last task, {job.last_task_id}, was unfinished"


@dataclass(frozen=True, slots=True)
class Tick:
    """The outcome of an instant: a task, new or existing; or none, for `left_out` instants from this one on."""

    due_at: datetime
    task_id: str | None = None
    is_new: bool = True
    left_out: int = 0
    why: str | None = None


def ticks(job: PlannedJob, due: Plan, plan: Plan, tasks: Sequence[tuple[str, bool]]) -> list[Tick]:
    """Return the outcomes of the instants `due`. `tasks`: those of the instants that the `plan` ran, and whether each
    is new.
    """
    outcomes = [Tick(at, task_id, is_new) for at, (task_id, is_new) in zip(plan.run, tasks, strict=True)]
    if due.skipped:
        outcomes.append(Tick(job.next_run_at, left_out=due.skipped, why=_no_beat(job)))
    if plan.skipped > due.skipped:
        left_out = [at for at in due.run if at not in plan.run]
        outcomes.append(Tick(left_out[0], left_out=plan.skipped - due.skipped, why=_overlap(job, plan)))
    return outcomes


def merged(entry: Entry, row: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a row's fields when the beat config is read: the config's, except those that an operator changed.

    A field counts as changed by an operator if it differs from the config as last read.
    """
    fresh = entry.declared()
    if row is None or row["declared"] is None:
        kept = {} if row is None else {"enabled": row["enabled"]}
        return fresh | kept
    said: Mapping[str, Any] = row["declared"]
    return {name: fresh[name] if row[name] == said.get(name, fresh[name]) else row[name] for name in CHANGEABLE}


def variable(name: str) -> str:
    """Return the environment variable that changes a default schedule: an expression, `on` or `off`."""
    return "CELERIAC_SCHEDULE_" + re.sub(r"\W+", "_", name).upper()


def overridden(entry: Entry, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the changes that the entry's environment variable makes."""
    value = environ.get(variable(entry.name), "").strip()
    if value.lower() in ("on", "off"):
        return {"enabled": value.lower() == "on"}
    return {"cron_expression": value} if value else {}


def every(seconds: float) -> str:
    """Return the `@every` expression for so many seconds."""
    return f"@every {seconds:.6f}".rstrip("0").rstrip(".") + "s"
