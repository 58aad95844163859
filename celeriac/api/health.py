"""Health: open to everybody; callers with a token that may read also get the doctor's findings."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Annotated, Literal

from anyio import move_on_after
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field
from sqlalchemy.exc import SQLAlchemyError

from celeriac.api.app import Counted
from celeriac.api.doctor import Finding
from celeriac.api.limits import ASIDE
from celeriac.api.problems import Problem
from celeriac.errors import ConfigurationError
from celeriac.operate.tokens import READ, Bearer
from celeriac.store.failures import log_error
from celeriac.store.migrate import unapplied

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

router = APIRouter(tags=["health"])

#: Seconds for which an answer is reused, so that frequent requests cost Postgres nothing.
HOLDS = 1.0


class Details(BaseModel):
    """Details, which are left out without a token that may read, and if they cannot be read within two seconds."""

    wrong: list[Finding] | None = Field(
        default=None,
        description="for a token that may read: what is wrong, the worst first, as in `GET /api/doctor`",
    )


class Health(Details):
    status: Literal["ok"] = Field(examples=["ok"])


class Readiness(Details):
    status: Literal["ready"]
    redis: Literal["answers", "away", "none"] = Field(
        description="away: work goes on by polls of SQL; none: there is none (`REDIS_URL=none`)", examples=["answers"]
    )


class ReadinessProbe:
    """The state of Postgres and Redis, checked no more often than every `HOLDS` seconds."""

    def __init__(self, app: Celeriac) -> None:
        self.app = app
        self._until = 0.0
        self._problem, self._redis_answers, self._schema_is_current = "", False, False

    def look(self) -> tuple[str, bool]:
        """Return why the server cannot serve (empty if it can), and whether Redis answers."""
        if time.monotonic() > self._until:
            self._problem = self._find_problem()
            self._redis_answers = self.app.publisher.answers()
            self._until = time.monotonic() + HOLDS
        return self._problem, self._redis_answers

    def _find_problem(self) -> str:
        try:
            with self.app.database.statement() as connection:
                connection.exec_driver_sql("SELECT 1")
                self._schema_is_current = self._schema_is_current or not unapplied(connection, self.app.migrations)
        except SQLAlchemyError:
            return "Postgres does not answer"
        except ConfigurationError as error:
            return str(error)
        return "" if self._schema_is_current else "the schema is not current: run `celeriac migrate`"


async def _details(request: Request, figures: Counted) -> dict[str, list[Finding]]:
    """Return the doctor's findings, if the caller may read them and they can be read in time."""
    bearer: Bearer | None = request.state.bearer
    if bearer is None or READ not in bearer.may:
        return {}
    try:
        with move_on_after(ASIDE):
            wrong = [one for one in await figures.doctor() if not one.ok]
            return {"wrong": [Finding.model_validate(one, from_attributes=True) for one in wrong]}
    except Exception as error:
        log_error(logger, error, "Health could not get the doctor's findings")
    return {}


MayBeDetailed = Annotated[dict[str, list[Finding]], Depends(_details)]


@router.get("/healthz", response_model_exclude_unset=True)
async def get_health(details: MayBeDetailed) -> Health:
    """Answer that the process is alive."""
    return Health(status="ok", **details)


@router.get("/readyz", response_model_exclude_unset=True)
async def get_readiness(request: Request, details: MayBeDetailed) -> Readiness:
    """Check that Postgres answers and has the current schema. Redis is reported, not required: accepting needs none."""
    problem, redis_answers = await request.app.state.readiness()
    if problem:
        more = {name: [one.model_dump() for one in some] for name, some in details.items()}
        raise Problem(503, problem, headers={"Retry-After": "5"}, more=more)
    if not request.app.state.celeriac.settings.has_redis:
        return Readiness(status="ready", redis="none", **details)
    return Readiness(status="ready", redis="answers" if redis_answers else "away", **details)
