"""Import of django-celery-beat: each row of PeriodicTask becomes a schedule, or one planned task."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from celery.schedules import crontab, schedule, solar
from django.apps import apps
from django.utils import timezone

from celeriac.app import Celeriac
from celeriac.errors import CeleriacError, ConfigurationError
from celeriac.insights.tasks import tasks
from celeriac.schedules import celerys, operate, written
from celeriac.schedules.decide import Entry
from celeriac.schedules.expressions import parse

WHY = "imported from django-celery-beat"

#: The task of a row that django-celery-beat adds by itself; the engine does not need it.
_CLEANUP = "celery.backend_cleanup"

TAKEN, LEFT, REFUSED = "taken", "left", "refused"


class Imported(NamedTuple):
    """The outcome for a row. `became`: TAKEN, LEFT (nothing to do) or REFUSED; `how`: the same in words."""

    name: str
    became: str
    how: str


def import_rows(app: Celeriac, *, by: str, dry_run: bool = False) -> Iterator[Imported]:
    """Import each row of PeriodicTask and yield its outcome; schedules that exist already are left alone.

    Raises LookupError without django-celery-beat.
    """
    model = apps.get_model("django_celery_beat", "PeriodicTask")
    for row in model.objects.select_related("interval", "crontab", "solar", "clocked").order_by("name"):
        try:
            yield _imported(app, row, by, dry_run)
        except (CeleriacError, ValueError, TypeError) as error:
            yield Imported(row.name, REFUSED, str(error))


def _imported(app: Celeriac, row: Any, by: str, dry_run: bool) -> Imported:
    now = datetime.now(UTC)
    if why := _left(app.conf.beat_schedule or {}, row, now):
        return Imported(row.name, LEFT, why)
    _refuse(row, now)
    if row.clocked:
        entry = _entry(app, row, schedule(timedelta(days=1)))
        return _planned(app, row, entry, _aware(row.clocked.clocked_time), dry_run)
    entry = _entry(app, row, _when(row))
    if row.one_off:
        return _planned(app, row, entry, parse(entry.cron_expression, entry.timezone).first(now), dry_run)
    return _scheduled(app, entry, by, dry_run)


def _left(listed: Mapping[str, Any], row: Any, now: datetime) -> str | None:
    """Return why the row need not be imported; None if it has to be."""
    if row.task == _CLEANUP:
        return "roles' `keep` says when rows go"
    if row.name in listed:
        return "beat_schedule has it"
    if row.expires is not None and _aware(row.expires) <= now:
        return "it has expired"
    if (row.one_off or row.clocked) and (not row.enabled or row.total_run_count):
        return "it is to run once, and has run or is switched off"
    return None


def _refuse(row: Any, now: datetime) -> None:
    """Raise ConfigurationError for a row with an option that schedules lack here."""
    if row.start_time is not None and _aware(row.start_time) > now:
        raise ConfigurationError("start_time: a schedule begins at once; import it then")
    if row.headers and json.loads(row.headers):
        raise ConfigurationError("headers: a schedule's calls have none of their own")
    if row.exchange:
        raise ConfigurationError(f"exchange={row.exchange!r}: a role has a queue, and no exchange")


def _aware(time: datetime) -> datetime:
    return time if timezone.is_aware(time) else timezone.make_aware(time)


def _when(row: Any) -> Any:
    """Return the row's schedule as one for `beat_schedule`."""
    if row.crontab:
        fields = ("minute", "hour", "day_of_week", "day_of_month", "month_of_year")
        return crontab(**{field: getattr(row.crontab, field) for field in fields})
    if row.solar:
        return solar(row.solar.event, float(row.solar.latitude), float(row.solar.longitude))
    if row.interval:
        return schedule(timedelta(**{row.interval.period: row.interval.every}))
    raise ConfigurationError("it has no schedule")


def _entry(app: Celeriac, row: Any, when: Any) -> Entry:
    options = {name: getattr(row, name) for name in ("queue", "routing_key", "priority")}
    options["expires"] = row.expires_ if row.expires_ is None or row.expire_seconds else _aware(row.expires)
    entry = celerys.entry(app.conf, app.roles, row.name, {
        "task": row.task, "schedule": when, "args": json.loads(row.args or "[]"),
        "kwargs": json.loads(row.kwargs or "{}"),
        "options": {name: value for name, value in options.items() if value is not None},
    })  # fmt: skip
    zone = str(row.crontab.timezone) if row.crontab else entry.timezone
    entry = replace(entry, enabled=row.enabled, description=row.description or None, timezone=zone)
    operate.refuse_what_cannot_run(app.role_named, app.settings.max_argument_bytes, entry)
    return entry


def _scheduled(app: Celeriac, entry: Entry, by: str, dry_run: bool) -> Imported:
    with app.database.reading() as connection:
        is_there = written.find(connection, entry.name) is not None
    if is_there:
        return Imported(entry.name, LEFT, "a schedule of this name is there already")
    if not dry_run:
        operate.create(app, entry, by=by, why=WHY)
    off = "" if entry.enabled else ", switched off"
    return Imported(entry.name, TAKEN, f"{entry.cron_expression} ({entry.timezone}){off}")


def _planned(app: Celeriac, row: Any, entry: Entry, at: datetime, dry_run: bool) -> Imported:
    """Import a row that runs once as a planned task; its id is the same at each import."""
    task_id = str(uuid5(NAMESPACE_URL, f"django-celery-beat:{row.pk}:{row.name}"))
    with app.database.reading() as connection:
        is_there = tasks.find(connection, f"task_id={task_id}") is not None
    if is_there:
        return Imported(row.name, LEFT, f"task {task_id} is there already")
    if not dry_run:
        options: Mapping[str, Any] = {"priority": row.priority} if row.priority is not None else {}
        app.send_task(
            entry.target, entry.options.get("args", ()), entry.kwargs, eta=at, task_id=task_id,
            **options, **({"expires": entry.options["expires"]} if "expires" in entry.options else {}),
        )  # fmt: skip
    return Imported(row.name, TAKEN, f"once, at {at.isoformat()}: task {task_id}")
