"""The app as handlers use it, and readings that they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from sqlalchemy import Connection

from celeriac import insights
from celeriac.api.shared import Shared, SharedBy
from celeriac.app import Celeriac
from celeriac.doctor import Finding, examine
from celeriac.insights import Count
from celeriac.operate import PATIENCE
from celeriac.store.failures import retry_deadlocks

T = TypeVar("T")


async def _app(request: Request) -> Celeriac:
    app: Celeriac = request.app.state.celeriac
    return app


class Figures:
    """Readings that take long to count; simultaneous requests for the same share one. `role`: None for all."""

    def __init__(self, app: Celeriac) -> None:
        self.app = app
        self.counts = SharedBy(self._counts)
        self.capacity = SharedBy(self._capacity)
        self.metrics = SharedBy(self._metrics)
        self.doctor = Shared(self._doctor)

    def _counts(self, role: str | None) -> dict[str, Count]:
        with self.app.database.reading() as connection:
            return insights.counts(connection, role)

    def _capacity(self, role: str | None) -> list[dict[str, Any]]:
        with self.app.database.statement() as connection:
            return insights.capacity(connection, role)

    def _metrics(self, role: str | None) -> list[dict[str, Any]]:
        with self.app.database.statement() as connection:
            return insights.metrics(connection, role)

    def _doctor(self) -> list[Finding]:
        return examine(self.app)


async def _figures(request: Request) -> Figures:
    figures: Figures = request.app.state.figures
    return figures


App = Annotated[Celeriac, Depends(_app)]

Counted = Annotated[Figures, Depends(_figures)]


def write(app: Celeriac, act: Callable[[Connection], T]) -> T:
    """Run `act` in one transaction. If an open transaction has locked what it needs, raises an error that
    answers 503.
    """

    def once() -> T:
        with app.database.transaction(patience=PATIENCE) as connection:
            return act(connection)

    return retry_deadlocks(once)
