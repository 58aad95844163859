"""What a handler works on: the app, and what all handlers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from sqlalchemy import Connection

from celeriac import insights
from celeriac.api.shared import Shared
from celeriac.app import Celeriac
from celeriac.insights import Count
from celeriac.operate import PATIENCE
from celeriac.store.failures import retry_deadlocks

T = TypeVar("T")


async def _app(request: Request) -> Celeriac:
    app: Celeriac = request.app.state.celeriac
    return app


async def _counts(request: Request) -> dict[str, Count]:
    counts: Shared[dict[str, Count]] = request.app.state.counts
    return await counts()


App = Annotated[Celeriac, Depends(_app)]

#: How many tasks there are of each status; all who ask at once share one reading.
Counted = Annotated[dict[str, Count], Depends(_counts)]


def count(app: Celeriac) -> dict[str, Count]:
    with app.database.reading() as connection:
        return insights.counts(connection)


def write(app: Celeriac, act: Callable[[Connection], T]) -> T:
    """`act` in one transaction. Raises what answers 503 where somebody's open transaction has what it needs."""

    def once() -> T:
        with app.database.transaction(patience=PATIENCE) as connection:
            return act(connection)

    return retry_deadlocks(once)
