"""Callers and their scopes. Each handler names the scope it needs.

view      see everything but tasks' arguments and results, and the text of errors
read      see everything
submit    add tasks, and see nothing
enqueue   read, and add tasks
operate   read, and steer what exists: tasks, roles, accounts, workers, schedules on and off
admin     all of it, and define schedules and migrate
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.openapi.models import HTTPBearer as BearerModel
from fastapi.security import SecurityScopes
from fastapi.security.base import SecurityBase

from celeriac.api.problems import Problem
from celeriac.operate.tokens import ADMIN, ENQUEUE, OPERATE, READ, Bearer


class Scoped(SecurityBase):
    """A dependency that returns the caller if its token has the scopes. Raises Problem 403 otherwise."""

    scheme_name = "token"
    model = BearerModel(description="`Authorization: Bearer celeriac_…`, made by `celeriac tokens create`")

    async def __call__(self, request: Request, wanted: SecurityScopes) -> Bearer:
        bearer: Bearer = request.state.bearer
        if missing := set(wanted.scopes) - bearer.may:
            raise too_narrow(bearer, *missing)
        return bearer


def too_narrow(bearer: Bearer, *missing: str, why: str = "") -> Problem:
    scope = " ".join(sorted(missing))
    challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
    return Problem(
        403, f"{why}the token {bearer.name!r} lacks the scope {scope}", headers={"WWW-Authenticate": challenge}
    )


_scoped = Scoped()

Reader = Annotated[Bearer, Security(_scoped, scopes=[READ])]
Enqueuer = Annotated[Bearer, Security(_scoped, scopes=[ENQUEUE])]


async def _unlimited(bearer: Enqueuer) -> Bearer:
    bearer.refuse_if_limited()
    return bearer


#: For endpoints that choose role, account and keys by themselves: a limited token is refused.
AnyEnqueuer = Annotated[Bearer, Depends(_unlimited)]
Operator = Annotated[Bearer, Security(_scoped, scopes=[OPERATE])]
Admin = Annotated[Bearer, Security(_scoped, scopes=[ADMIN])]
