"""`self.session` and `self.early_commit()` of an `async def` handler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.util import greenlet_spawn

from celeriac.run import coroutines
from celeriac.run.run import Run
from celeriac.run.sessions import HandlersSession

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

T = TypeVar("T")


class AwaitedSession(HandlersSession):
    """The session behind the handler's `AsyncSession`. The settle uses it outside the handler's coroutine."""

    enters = "async with"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()

    def within(self, act: Callable[[], T]) -> T:
        return coroutines.finish(greenlet_spawn(act), self.loop)


@cache
def _of_handlers() -> type[AsyncSession]:
    """Return the class of handlers' sessions, whose blocks end as those of `HandlersSession` do."""
    from sqlalchemy.ext.asyncio import AsyncSession

    class HandlersAsyncSession(AsyncSession):
        async def __aexit__(self, kind: Any, value: Any, traceback: Any) -> None:
            if kind is not None:
                await super().__aexit__(kind, value, traceback)

    return HandlersAsyncSession


def session(run: Run) -> AsyncSession:
    """The handler's session, opened at first use; it commits with the task's outcome or not at all. Raises
    CeleriacError once the outcome is known, and ConfigurationError without psycopg.
    """
    run.refuse_session()
    if run.opened is None:
        engine = run.database.for_coroutines(on_loop=run.on_loop)
        run.session_of_coroutine = _of_handlers()(engine, sync_session_class=AwaitedSession)
        opened = run.opened = run.session_of_coroutine.sync_session
        opened.task = run.task.id
        if not run.on_loop:
            opened.loop = None  # it runs for one handler at a time, and is paused in between
    return run.session_of_coroutine


@asynccontextmanager
async def early_commit(run: Run) -> AsyncIterator[AsyncSession]:
    """Open a transaction of its own. Raises LeaseLost, and writes nothing, if the row is no longer this run's."""
    engine = run.database.for_coroutines(on_loop=run.on_loop)
    from sqlalchemy.ext.asyncio import AsyncSession

    async with AsyncSession(engine) as own, own.begin():
        yield own
        await own.run_sync(run.hold)
