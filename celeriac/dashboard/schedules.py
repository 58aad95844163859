"""Schedules: will they fire, did they fire, were they late? Create, edit, delete, and reset them, as the API does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Response
from sqlalchemy import RowMapping

from celeriac import insights
from celeriac.dashboard import acts
from celeriac.dashboard.forms import Form, Sent, as_object, is_number
from celeriac.dashboard.guard import Definer, ScheduleSteerer, Viewer
from celeriac.dashboard.page import Page
from celeriac.errors import (
    BadValue,
    CeleriacError,
    ConfigurationError,
    EnqueueRefused,
    IllegalMove,
    Unknown,
    UnknownRole,
)
from celeriac.insights.tasks import redaction
from celeriac.schedules import operate, written
from celeriac.schedules.decide import CALL_OPTIONS, CHANGEABLE, Entry
from celeriac.schedules.expressions import parse
from celeriac.store.sensitive import kept

router = APIRouter()


#: Number of coming instants on a schedule's page, and of schedules in the list that show their last ticks.
UPCOMING, STRIPS = 5, 200


@router.get("/schedules")
def listed(page: Viewer) -> Response:
    page.ask()
    schedules = page.panel(insights.schedules)
    tasks = schedules.then(lambda rows: [written.shown(row) for row in rows if row["kind"] == "task"])
    ids = [row["id"] for row in tasks.value or ()][:STRIPS]
    return page.show(
        "schedules.html", "Schedules", schedules=tasks, ticking=page.panel(insights.ticking, ids),
        beats=page.panel(insights.beats), lateness=page.panel(insights.lateness),
    )  # fmt: skip


@router.get("/schedules/{name:name}")
def shown(name: str, page: Viewer) -> Response:
    page.ask()
    schedule = next((row for row in page.read(insights.schedules) if row["name"] == name), None)
    if schedule is None:
        raise Unknown(f"there is no schedule {name!r}")
    trail = page.panel(insights.audit_trail, kind="schedule", target=str(schedule["id"]), limit=20)
    following, which = upcoming(schedule, page.site.reading.clock()), schedule["id"]
    return page.show(
        "schedule.html", f"Schedule {name}", schedule=written.shown(schedule), trail=trail, following=following,
        ticks=page.panel(insights.ticks_of, which), lateness=page.panel(insights.lateness, which),
        ticking=page.panel(insights.ticking, [which]),
        differs=written.differences(schedule),
    )  # fmt: skip


def upcoming(schedule: Mapping[str, Any], now: datetime) -> list[datetime]:
    """Return the schedule's next instants in its own time zone, if it stays as it is."""
    try:
        return coming(schedule["cron_expression"], schedule["timezone"], now, schedule["next_run_at"])
    except ConfigurationError:
        return []


def coming(expression: str, zone: str, now: datetime, planned: datetime | None = None) -> list[datetime]:
    """Return the next instants in that time zone, from the planned one on. Raises ConfigurationError."""
    when = parse(expression, zone)
    first = (
        planned if planned is not None and planned > now else when.resume(planned, now) if planned else when.first(now)
    )
    instants = when.instants(first, datetime.max.replace(tzinfo=UTC), UPCOMING)
    return [at.astimezone(ZoneInfo(zone)) for at in instants]


@router.post("/switch-schedule/{name:name}")
def switch(name: str, page: ScheduleSteerer, form: Sent) -> Response:
    def act() -> str:
        on = form["enabled"] == "yes"
        operate.toggle(page.celeriac, name, on, by=page.bearer.name, why=form["why"])
        return f"{name} is switched {'on' if on else 'off'}."

    return acts.done(page, page.to("schedules", name), act)


@router.post("/run-schedule/{name:name}")
def run(name: str, page: ScheduleSteerer) -> Response:
    """Run it once, beside its planned instants; not while its last task is unfinished."""

    def act() -> str:
        done = operate.run_now(page.celeriac, name, by=page.bearer.name)
        if done.ran:
            return f"{name} was run: {done.result}."
        return f"Nothing was enqueued: the last task of {name}, {done.result}, is unfinished."

    return acts.done(page, page.to("schedules", name), act)


@dataclass(slots=True)
class Filled:
    """A form as filled in: its texts, its values, and the errors of its fields."""

    said: dict[str, str]
    values: dict[str, Any] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, form: Form, names: tuple[str, ...]) -> Filled:
        filled = cls({field: form.name(field) if field in _NAMES else form[field] for field in names})
        for name in names:
            try:
                filled.values[name] = _READ[name](filled.said[name])
            except BadValue as error:
                filled.wrong[name] = str(error)
        return filled

    def refuse(self, error: CeleriacError) -> None:
        """Show the refusal beside the field that caused it."""
        name, what = _refused(error)
        self.wrong[name if name in self.said else "name"] = what


#: The fields that are names.
_NAMES = ("name", "target")

#: A new schedule's fields, with their first values.
NEW = {
    "name": "", "target": "", "cron_expression": "", "timezone": "UTC", "kwargs": "{}", "options": "{}", "priority": "",
    "misfire": "once", "misfire_grace": "60", "overlap": "skip", "description": "", "enabled": "yes",
}  # fmt: skip


@router.get("/new-schedule")
def new(page: Definer) -> Response:
    page.ask()
    return _show(page, Filled(dict(NEW)), None)


@router.post("/new-schedule")
def create(page: Definer, form: Sent) -> Response:
    """Create it; for the button Preview, show the form again with the times at which it would run."""

    def act(values: dict[str, Any]) -> str:
        made = operate.create(page.celeriac, Entry(kind="task", **values), by=page.bearer.name, why=form["why"])
        return str(made["name"])

    return _done(page, form, tuple(NEW), None, act, "made")


@router.get("/edit-schedule/{name:name}")
def edit(name: str, page: Definer) -> Response:
    page.ask()
    row = _row(page, name)
    return _show(page, Filled(_said(_redacted(page, row))), row)


@router.post("/edit-schedule/{name:name}")
def change(name: str, page: Definer, form: Sent) -> Response:
    """Change fields that differ from the row. If somebody changed it meanwhile, the form is shown again."""
    row = _row(page, name)

    def act(values: dict[str, Any]) -> str:
        if "kwargs" in values:
            values = values | {"kwargs": kept(values["kwargs"], row["kwargs"])}
        changes = {name: value for name, value in values.items() if value != row[name]}
        done = operate.change(page.celeriac, name, changes, by=page.bearer.name, why=form["why"], seen=form["seen"])
        return str(done["name"])

    return _done(page, form, tuple(_said(dict(row))), row, act, "changed")


@router.post("/delete-schedule/{name:name}")
def delete(name: str, page: Definer, form: Sent) -> Response:
    def act() -> str:
        operate.delete(page.celeriac.database, name, by=page.bearer.name, why=form["why"])
        return f"{name} is deleted."

    return acts.done(page, page.to("schedules"), act)


@router.post("/reset-schedule/{name:name}")
def reset(name: str, page: Definer, form: Sent) -> Response:
    """Reset it to the code's declaration, which it follows from now on."""

    def act() -> str:
        declared = written.differences(dict(_row(page, name)))
        if not declared:
            raise BadValue(f"{name} is as the code declares it")
        operate.change(page.celeriac, name, declared, action="reset", by=page.bearer.name, why=form["why"])
        return f"{name} is as the code declares it."

    return acts.done(page, page.to("schedules", name), act)


def _done(
    page: Page, form: Form, names: tuple[str, ...], row: RowMapping | None, act: Callable[[dict[str, Any]], str],
    done: str,
) -> Response:  # fmt: skip
    filled = Filled.of(form, names)
    if not filled.wrong and not form["preview"]:
        try:
            name = act(filled.values)
            return page.go(page.to("schedules", name), f"{name} is {done}.")
        except CeleriacError as error:
            filled.refuse(error)
    return _show(page, filled, row, seen=form["seen"])


def _show(page: Page, filled: Filled, row: RowMapping | None, *, seen: str = "") -> Response:
    title = "New schedule" if row is None else f"Edit {row['name']}"
    updated_at = "" if row is None else row["updated_at"].isoformat()
    return page.show(
        "schedule-form.html", title, status=422 if filled.wrong else 200, said=filled.said, wrong=filled.wrong,
        name=row and row["name"], declared=row is not None and row["declared"] is not None, seen=seen or updated_at,
        following=_following(page, filled),
    )  # fmt: skip


def _following(page: Page, filled: Filled) -> list[datetime]:
    """Return when it would run; an error is shown beside its field instead."""
    expression, zone = filled.said["cron_expression"], filled.said["timezone"] or "UTC"
    try:
        return coming(expression, zone, page.site.reading.clock()) if expression else []
    except CeleriacError as error:
        about = "timezone" if "zone" in str(error) else "cron_expression"
        filled.wrong.setdefault(about, str(error))
        return []


def _redacted(page: Page, row: RowMapping) -> Mapping[str, Any]:
    """Return the row with secrets redacted; a redacted value that is sent back changes nothing."""
    rows: list[dict[str, Any]] = page.read(redaction.schedules, [dict(row)])
    return rows[0]


def _row(page: Page, name: str) -> RowMapping:
    row: RowMapping = page.read(operate.get, name)
    return row


def _said(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields as texts; for passes and sweeps without the fields of a task."""
    names = ("name", *CHANGEABLE)
    if row["kind"] != "task":
        names = tuple(name for name in names if name not in ("kwargs", "options", "priority"))
    return {name: _text(row[name]) for name in names}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return f"{value:.15g}" if isinstance(value, float) else "" if value is None else str(value)


def _options(said: str) -> dict[str, Any]:
    options = as_object(said)
    if unknown := sorted(options.keys() - CALL_OPTIONS.keys()):
        raise BadValue(f"there is no option {unknown[0]!r}; there are {', '.join(CALL_OPTIONS)}")
    return options


def _one_of(*right: str) -> Callable[[str], str]:
    def read(said: str) -> str:
        if said not in right:
            raise BadValue(f"give one of {', '.join(right)}")
        return said

    return read


def _priority(said: str) -> int | None:
    if said and not is_number(said.removeprefix("-")):
        raise BadValue("give a whole number, or nothing for the role's own")
    return int(said) if said else None


def _grace(said: str) -> float:
    try:
        return float(said)
    except ValueError:
        raise BadValue("give seconds") from None


_READ: Mapping[str, Callable[[str], Any]] = {
    "name": str, "target": str, "cron_expression": str, "timezone": lambda said: said or "UTC", "kwargs": as_object,
    "options": _options, "priority": _priority, "misfire": _one_of("skip", "once", "all"), "misfire_grace": _grace,
    "overlap": _one_of("skip", "allow"), "description": lambda said: said or None, "enabled": bool,
}  # fmt: skip

#: Finds an option's name in a refusal's message.
_OPTION = re.compile(r": (\w+)=")


def _refused(error: CeleriacError) -> tuple[str, str]:
    """Return the field, and what is wrong with it."""
    match error:
        case UnknownRole():
            return "target", str(error)
        case EnqueueRefused():
            named = _OPTION.search(str(error))
            return "priority" if named and named[1] == "priority" else "options" if named else "kwargs", str(error)
        case IllegalMove():
            return "name", str(error)
    about, mark, what = str(error).partition(": ")
    return (about.partition("=")[0], what) if mark else ("name", str(error))
