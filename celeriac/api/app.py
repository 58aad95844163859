"""Dependencies of handlers: the app, and slow readings that simultaneous requests share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from operator import methodcaller
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from sqlalchemy import Connection

from celeriac import insights
from celeriac.api.shared import Shared
from celeriac.app import Celeriac
from celeriac.doctor import examine
from celeriac.operate import PATIENCE
from celeriac.store.connections import Database
from celeriac.store.failures import retry_deadlocks

T = TypeVar("T")


async def _app(request: Request) -> Celeriac:
    app: Celeriac = request.app.state.celeriac
    return app


class Figures:
    """Slow readings. Simultaneous requests for the same role (None: all roles) share one."""

    def __init__(self, app: Celeriac) -> None:
        self.counts = Shared(partial(_read, app, methodcaller("reading"), insights.counts))
        self.capacity = Shared(partial(_read, app, methodcaller("statement"), insights.capacity))
        self.metrics = Shared(partial(_read, app, methodcaller("statement"), insights.metrics))
        self.doctor = Shared(partial(examine, app))


def _read(
    app: Celeriac, begin: Callable[[Database], AbstractContextManager[Connection]],
    figure: Callable[[Connection, str | None], T], role: str | None,
) -> T:  # fmt: skip
    with begin(app.database) as connection:
        return figure(connection, role)


async def _figures(request: Request) -> Figures:
    figures: Figures = request.app.state.figures
    return figures


App = Annotated[Celeriac, Depends(_app)]

Counted = Annotated[Figures, Depends(_figures)]


def write(app: Celeriac, act: Callable[[Connection], T]) -> T:
    """Run `act` in one transaction. Raises an error that answers 503 if somebody's lock outlasts the patience."""

    def once() -> T:
        with app.database.transaction(patience=PATIENCE) as connection:
            return act(connection)

    return retry_deadlocks(once)
