"""`/api/admin/scheduled-jobs`: schedules. Those of the beat config can be changed here, but come from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, RowMapping

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Admin, Operator, Reader
from celeriac.api.changes import Because
from celeriac.api.fields import Called, Flag, IdInPath, Name, Number, Offset, Priority, Text, Whole
from celeriac.api.paging import Paged, PageQuery
from celeriac.api.problems import invalid
from celeriac.api.system import AnswerModel
from celeriac.app import Celeriac
from celeriac.errors import BadArguments
from celeriac.insights.tasks import redaction
from celeriac.roles.bounds import LONGEST_DELAY, MOST
from celeriac.roles.signature import Signature
from celeriac.schedules import operate, written
from celeriac.schedules.decide import CHANGEABLE, Entry
from celeriac.schedules.timetable import RunNow
from celeriac.store.role_names import is_built_in

router = APIRouter(prefix="/api/admin/scheduled-jobs", tags=["scheduled jobs"])

#: The fields of a body that are columns of the schedule; any other is an argument of the handler.
_OWN = ("name", *CHANGEABLE)
_MAY_BE_NULL = ("description", "priority")


Distance = Annotated[Number, Field(ge=-LONGEST_DELAY, le=LONGEST_DELAY)]


class Options(BaseModel):
    """Options of each call besides its arguments. Durations in seconds."""

    model_config = ConfigDict(extra="forbid")

    args: list[Any] | None = Field(default=None, description="positional arguments, before those by name")
    account: Text | None = None
    lock_key: Text | None = None
    unique_key: Text | None = None
    timeout: Annotated[Number, Field(gt=0, le=LONGEST_DELAY)] | None = None
    max_retries: Annotated[int, Whole(0, MOST)] | None = None
    countdown: Distance | None = None
    expires: Distance | Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = Field(
        default=None, description="seconds, or a time", examples=[300]
    )


class Settable(Because):
    """A schedule's fields. Any further one is an argument of the role's handler, as if it stood in `kwargs`."""

    model_config = ConfigDict(extra="allow")

    description: Text | None = None
    kwargs: dict[str, Any] = Field(default_factory=dict)
    options: Options = Field(default_factory=Options)
    timezone: Name = Field(default="UTC", examples=["Europe/Berlin"])
    enabled: Flag = True
    priority: Priority | None = Field(default=None, description="null: the role's own", examples=[10])
    misfire: Literal["skip", "once", "all"] = Field(default="once", description="what happens to missed instants")
    misfire_grace: Annotated[Number, Field(ge=1, le=365 * 86_400, description="seconds")] = 60.0
    overlap: Literal["skip", "allow"] = Field(
        default="skip", description="whether a task is enqueued while the last one is unfinished"
    )

    def entry_fields(self) -> dict[str, Any]:
        """Return the fields sent, with the arguments in `kwargs`."""
        sent = {name: getattr(self, name) for name in self.model_fields_set if name in _OWN}
        if "options" in sent:
            sent["options"] = self.options.model_dump(exclude_none=True)
        sent = {name: value for name, value in sent.items() if value is not None or name in _MAY_BE_NULL}
        extra = self.model_extra or {}
        return sent | ({"kwargs": self.kwargs | extra} if extra or "kwargs" in sent else {})


class NewScheduledJob(Settable):
    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"examples": [{
            "name": "daily-askreddit", "description": "Daily crawl of AskReddit", "subreddit_id": 1,
            "cron_expression": "@daily", "enabled": True, "priority": 10,
        }]},
    )  # fmt: skip

    name: Called
    cron_expression: Name = Field(examples=["@daily"])
    role: Name | None = Field(
        default=None, description="left out: the one role whose handler takes just these arguments", examples=[None]
    )


class ChangedScheduledJob(Settable):
    """Changes to a schedule; fields not sent stay."""

    name: Called | None = Field(default=None, examples=["hourly-worldnews"])
    cron_expression: Name | None = Field(default=None, examples=["@hourly"])


class Toggle(Because):
    enabled: Flag = Field(examples=[False])


class ScheduledJob(AnswerModel):
    id: int
    name: str
    description: str | None
    kind: Literal["task", "pass", "sweep"] = Field(description="what it does: enqueue a task, or beat's own work")
    target: str = Field(description="the role, or the sweep", examples=["crawl_subreddit"])
    kwargs: dict[str, Any]
    options: dict[str, Any]
    cron_expression: str
    in_words: str | None = Field(
        description="the expression in words, by the clocks of its zone; null if a few words cannot say it exactly",
        examples=["at 00:00 every day"],
    )
    timezone: str
    enabled: bool
    priority: int | None
    misfire: str
    misfire_grace: float
    overlap: str
    owner: str = Field(description="api, or the beat config it comes from")
    next_run_at: datetime
    last_run_at: datetime | None
    last_task_id: str | None
    differs: dict[str, Any] = Field(
        description="fields that differ from the beat config, with its values", examples=[{"priority": 5}]
    )
    skips: int = Field(description="skipped instants: missed, or while the last task was unfinished")
    last_report: dict[str, Any] | None = Field(
        description="the result of the last pass or sweep; for a task, why instants were skipped"
    )
    quarantined: str | None = Field(description="why it cannot run, until it is changed")
    created_by: str | None
    created_at: datetime
    updated_at: datetime


class ScheduledJobs(Paged):
    scheduled_jobs: list[ScheduledJob]


class ScheduleQuery(PageQuery):
    offset: Offset = 0


class RunNowResult(BaseModel):
    told: str = Field(description="the task's id, or what a pass or sweep did", examples=["pass instasite_build: 60"])
    ran: bool = Field(
        description="false: nothing was enqueued, because the schedule's last task, in `told`, is unfinished",
        examples=[True],
    )


@router.get("")
def list_scheduled_jobs(query: Annotated[ScheduleQuery, Query()], app: App, _: Reader) -> ScheduledJobs:
    """List schedules by name."""
    insights.refuse_both(query.after, query.offset)
    after = query.after or ""
    with app.database.reading() as connection:
        rows, more = query.read(lambda n: written.listed(connection, n, query.offset, after), itemgetter("name"))
        jobs = _shown(connection, rows)
    return ScheduledJobs(scheduled_jobs=jobs, next=more)


@router.post("", status_code=201)
def create_scheduled_job(body: NewScheduledJob, app: App, caller: Admin) -> ScheduledJob:
    """Create a schedule, which runs from its next instant on. 409 if the name is taken."""
    fields = body.entry_fields()
    role = body.role or role_taking(app, fields.get("kwargs", {}))
    entry = Entry(kind="task", target=role, **fields)
    return _one(app, operate.create(app, entry, by=caller.name, why=body.why))


@router.get("/{job}")
def get_scheduled_job(job: IdInPath, app: App, _: Reader) -> ScheduledJob:
    """Return one schedule, with the time of its next run."""
    with app.database.reading() as connection:
        return _shown(connection, [operate.get(connection, job)])[0]


@router.put("/{job}")
def update_scheduled_job(job: IdInPath, body: ChangedScheduledJob, app: App, caller: Admin) -> ScheduledJob:
    """Change the fields sent. A value that differs from the beat config overrides it until it is changed back."""
    return _one(app, operate.change(app, job, body.entry_fields(), by=caller.name, why=body.why))


@router.delete("/{job}")
def delete_scheduled_job(job: IdInPath, app: App, caller: Admin) -> ScheduledJob:
    """Delete a schedule and return it. 409 for one of the beat config, which would come back: switch it off instead."""
    return _one(app, operate.delete(app.database, job, by=caller.name))


@router.post("/{job}/toggle")
def toggle_scheduled_job(job: IdInPath, body: Toggle, app: App, caller: Operator) -> ScheduledJob:
    """Switch a schedule on or off. Instants of the time when it was off do not count as missed."""
    return _one(app, operate.toggle(app, job, body.enabled, by=caller.name, why=body.why))


@router.post("/{job}/run-now")
def run_scheduled_job_now(job: IdInPath, app: App, caller: Operator) -> RunNowResult:
    """Run a schedule once, apart from its instants, even if it is off; not while its last task is unfinished and may
    not overlap.
    """
    return result_of(operate.run_now(app, job, by=caller.name))


def result_of(done: RunNow) -> RunNowResult:
    return RunNowResult(told=done.result, ran=done.ran)


def _one(app: App, row: RowMapping) -> ScheduledJob:
    with app.database.reading() as connection:
        return _shown(connection, [row])[0]


def _shown(connection: Connection, rows: Sequence[RowMapping]) -> list[ScheduledJob]:
    shown = [written.shown(dict(row)) for row in rows]
    return [ScheduledJob.model_validate(job) for job in redaction.schedules(connection, shown)]


def role_taking(app: Celeriac, arguments: Mapping[str, Any]) -> str:
    """Return the one role whose handler takes just these arguments. Raises Problem 422 if there is none, or several."""
    declared = [d for d in app.roles.own() if not is_built_in(d.role.name)]
    taking = [d.role.name for d in declared if arguments and _takes(d.signature, arguments)]
    if len(taking) != 1:
        takers = f"several do: {', '.join(taking)}" if taking else "none does"
        raise invalid("role", f"give a role; left out, one role has to take just these arguments, and {takers}")
    return taking[0]


def _takes(signature: Signature, arguments: Mapping[str, Any]) -> bool:
    try:
        signature.bind((), arguments)
    except BadArguments:
        return False
    return set(arguments) <= set(signature.names)
