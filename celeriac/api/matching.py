"""Bulk by filter: first the count, then the change, a bounded transaction at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Self

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, model_validator
from sqlalchemy import Connection

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Operator
from celeriac.api.changes import Because, RefusedTask, refusals
from celeriac.api.fields import Flag, Whole
from celeriac.api.tasks import TaskFilter
from celeriac.operate import PATIENCE, steer
from celeriac.operate.audit import AuditedTogether
from celeriac.operate.steer import Steered
from celeriac.repair.bulks import conditions, meant

router = APIRouter(prefix="/api/tasks/matching", tags=["tasks"])

#: Refusals that an answer lists; the rest is only counted.
MOST_REFUSALS = 100


#: Values that set no condition.
_EMPTY: tuple[Any, ...] = (None, [], {})


def _with_a_condition(schema: dict[str, Any]) -> None:
    """Add to the document that at least one field has to be set."""
    schema["minProperties"] = 1
    schema["anyOf"] = [
        {"required": [name], "properties": {name: {"not": {"enum": list(_EMPTY)}}}} for name in schema["properties"]
    ]


class BoundFilter(TaskFilter):
    """A filter with at least one condition: a bulk of everything is a slip."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_with_a_condition)

    arguments: dict[str, Any] | None = Field(default=None, description="that the call gave, by the handler's names")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not any(value not in _EMPTY for value in self.model_dump().values()):
            raise ValueError("give at least one condition")
        return self


class MatchRequest(Because):
    filter: BoundFilter = Field(examples=[{"role": "product_resync", "status": ["failed"]}])
    dry_run: Flag = Field(default=True, description="only count; nothing is changed until this is false")
    most: Annotated[int, Whole(1, 100_000), Field(description="tasks to change at most")] = 10_000


class Matched(BaseModel):
    """The matching tasks. `complete` false: there are more. Repeat the request; where it `gave_up`, narrow the filter
    or have `POST /api/bulk` search all of them.
    """

    dry_run: bool
    matching: int = Field(examples=[3])
    complete: bool
    gave_up: bool = Field(description="whether it looked no further, as so few of the tasks it looked at match")
    changed: int
    refused: int
    refusals: list[RefusedTask] = Field(description=f"the first {MOST_REFUSALS}")


@router.post("/cancel")
def cancel_matching_tasks(body: MatchRequest, app: App, caller: Operator) -> Matched:
    """Cancel unfinished tasks that match; with `dry_run` (the default) only count them."""
    return _steer(app, body, "cancel", partial(steer.cancel, by=caller.name, why=body.why))


@router.post("/retry")
def retry_matching_tasks(body: MatchRequest, app: App, caller: Operator) -> Matched:
    """Retry failed and cancelled tasks that match; with `dry_run` (the default) only count them."""
    return _steer(app, body, "retry", partial(steer.retry, by=caller.name, why=body.why))


def _steer(app: App, body: MatchRequest, move: str, act: Callable[[Connection, Sequence[int]], Steered]) -> Matched:
    wanted = meant(move, body.filter.as_filter())
    if wanted is None:
        return Matched(
            dry_run=body.dry_run, matching=0, complete=True, gave_up=False, changed=0, refused=0, refusals=[]
        )  # fmt: skip
    with app.database.reading() as connection:
        matches = insights.matching(connection, wanted, most=body.most + 1)
    ids, complete = matches.ids[: body.most], len(matches.ids) <= body.most and not matches.gave_up
    many = AuditedTogether(conditions(wanted), len(ids))
    batches = steer.in_batches(app.database, ids, act, patience=PATIENCE, many=many)
    done = Steered() if body.dry_run else sum(batches, Steered())
    return Matched(
        dry_run=body.dry_run, matching=len(ids), complete=complete, gave_up=matches.gave_up,
        changed=len(done.changed), refused=len(done.refused), refusals=refusals(done)[:MOST_REFUSALS],
    )  # fmt: skip
