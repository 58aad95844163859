"""What a handler works on: the app, and what all handlers share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from celeriac import insights
from celeriac.api.shared import Shared
from celeriac.app import Celeriac
from celeriac.insights import Count


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
    with app.database.statement() as connection:
        return insights.counts(connection)
