"""Retry, cancel and prioritise: `POST /api/tasks/{move}`, for named tasks or for all that a filter matches.

A filter's matches are counted first. Then they are changed in bounded transactions, or by the servers as a bulk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Self

from fastapi import APIRouter
from pydantic import ConfigDict, Field, model_validator
from sqlalchemy import Connection

from celeriac import insights
from celeriac.api.app import App, write
from celeriac.api.callers import Operator
from celeriac.api.changes import Because, ManyChanged, many
from celeriac.api.fields import Flag, Ids, Priority, Whole
from celeriac.api.tasks import TaskFilter
from celeriac.operate import PATIENCE, steer
from celeriac.operate.audit import AuditedTogether
from celeriac.operate.steer import Steered
from celeriac.repair import bulks

router = APIRouter(prefix="/api/tasks", tags=["tasks"])

Act = Callable[[Connection, Sequence[int]], Steered]

#: Values of a filter's fields that are no condition.
_EMPTY: tuple[Any, ...] = (None, [], {})


#: Fields that go only with a filter: named tasks are changed at once.
_OF_A_FILTER = ("dry_run", "most", "later")


def _with_a_condition(schema: dict[str, Any]) -> None:
    """Add to the document that at least one field has to be set."""
    schema["minProperties"] = 1
    schema["anyOf"] = [
        {"required": [name], "properties": {name: {"not": {"enum": list(_EMPTY)}}}} for name in schema["properties"]
    ]


class BoundFilter(TaskFilter):
    """A filter with at least one condition: a bulk of everything is taken for a mistake."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_with_a_condition)

    arguments: dict[str, Any] | None = Field(default=None, description="the call's arguments, by the handler's names")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not any(value not in _EMPTY for value in self.model_dump().values()):
            raise ValueError("give at least one condition")
        return self


class Which(Because):
    """The tasks to move: `ids`, or all that a `filter` matches."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [
            {
                "required": ["ids"], "properties": {"ids": {"type": "array"}, "filter": {"type": "null"}},
                "not": {"anyOf": [{"required": [name]} for name in _OF_A_FILTER]},
            },
            {"required": ["filter"], "properties": {"filter": {"type": "object"}, "ids": {"type": "null"}}},
        ]}
    )  # fmt: skip

    ids: Ids | None = Field(default=None, examples=[None])
    filter: BoundFilter | None = Field(default=None, examples=[{"role": "product_resync", "status": ["failed"]}])
    dry_run: Flag = Field(default=True, description="for a filter: only count; nothing changes until this is false")
    most: Annotated[int, Whole(1, 100_000), Field(description="for a filter: the most tasks to change")] = 10_000
    later: Flag = Field(
        default=False, description="for a filter: change all of them, however many; the servers work on it as a bulk"
    )

    @model_validator(mode="after")
    def _is_either(self) -> Self:
        if (self.ids is None) is (self.filter is None):
            raise ValueError("give either ids or a filter")
        if self.ids is not None and (beside := [name for name in _OF_A_FILTER if name in self.model_fields_set]):
            raise ValueError(f"{', '.join(beside)}: of a filter; tasks that are named by ids are changed at once")
        return self


class Retry(Which):
    goes_on: Flag = Field(default=False, description="their progress stays, and their attempts are counted on")

    @model_validator(mode="after")
    def _is_no_bulk(self) -> Self:
        if self.goes_on and self.later:
            raise ValueError("a bulk retries with all attempts: give either goes_on or later")
        return self

    model_config = ConfigDict(json_schema_extra={
        **Which.model_config["json_schema_extra"],  # type: ignore[dict-item]
        "not": {"required": ["goes_on", "later"], "properties": {"goes_on": {"const": True}, "later": {"const": True}}},
    })  # fmt: skip


class Prioritise(Which):
    priority: Priority = Field(examples=[50])


class Moved(ManyChanged):
    """The result of a move. Each named task is in one of the three lists. For a filter, `complete` false means that
    there are more: repeat the request; if it `gave_up`, narrow the filter or set `later`.
    """

    changed: list[int] = Field(default=[])
    missing: list[int | str] = Field(default=[], description="as they were given", examples=[[8, "nobody's"]])
    dry_run: bool = False
    matching: int = Field(description="named or matching tasks", examples=[3])
    complete: bool = True
    gave_up: bool = Field(
        default=False, description="whether it stopped reading because so few of the tasks it read match"
    )
    bulk: int | None = Field(default=None, description="the bulk on which the servers work: `GET /api/bulk/{number}`")


@router.post("/retry")
def retry_tasks(body: Retry, app: App, caller: Operator) -> Moved:
    """Make failed and cancelled tasks wait again, with all their attempts, or from where they stopped."""
    act = partial(steer.retry, by=caller.name, why=body.why, goes_on=body.goes_on)
    return _move(app, caller, body, "retry", act)


@router.post("/cancel")
def cancel_tasks(body: Which, app: App, caller: Operator) -> Moved:
    """Cancel unfinished tasks: at once, or, for running ones, by a request to their workers."""
    return _move(app, caller, body, "cancel", partial(steer.cancel, by=caller.name, why=body.why))


@router.post("/prioritise")
def prioritise_tasks(body: Prioritise, app: App, caller: Operator) -> Moved:
    """Give unfinished tasks another priority; waiting ones are claimed in the new order from now on."""
    act = partial(steer.set_priority, priority=body.priority, by=caller.name, why=body.why)
    return _move(app, caller, body, "prioritise", act, priority=body.priority)


def _move(app: App, caller: Operator, body: Which, move: str, act: Act, priority: int | None = None) -> Moved:
    if body.filter is None:
        done = many(app, body.ids or (), act)
        return Moved(**dict(done), matching=len(body.ids or ()))
    wanted, by, why = body.filter.as_filter(), caller.name, body.why
    if body.later and not body.dry_run:
        bulk = write(app, lambda c: bulks.ask(c, move, wanted, priority=priority, by=by, why=why))
        bulks.start(app.database)
        return Moved(refused=[], matching=0, complete=False, bulk=bulk)
    meant = bulks.meant(move, wanted)
    if meant is None:
        return Moved(refused=[], dry_run=body.dry_run, matching=0)
    with app.database.reading() as connection:
        matches = insights.matching(connection, meant, most=body.most + 1)
    ids, complete = matches.ids[: body.most], len(matches.ids) <= body.most and not matches.gave_up
    together = AuditedTogether(bulks.conditions(meant), len(ids))
    batches = steer.in_batches(app.database, ids, act, patience=PATIENCE, many=together)
    changed = ManyChanged.of(Steered() if body.dry_run else sum(batches, Steered()))
    return Moved(
        **dict(changed), dry_run=body.dry_run, matching=len(ids), complete=complete, gave_up=matches.gave_up
    )  # fmt: skip
