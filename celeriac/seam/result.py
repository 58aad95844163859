"""Celery's results, for tasks that are rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from celery.result import AsyncResult, EagerResult, ResultSet
from celery.states import PROPAGATE_STATES

from celeriac.seam import waiting
from celeriac.seam.enqueuer import no_ambient


class RowResult(AsyncResult):
    """Celery's result. Waiting for a chord's body reads all its members in one statement a poll."""

    async def aget(
        self, timeout: float | None = None, *, propagate: bool = True, interval: float = 0.5,  # noqa: ASYNC109
    ) -> Any:  # fmt: skip
        """Wait as `get` does, without blocking the event loop. One thread polls for all that wait in a process.

        `timeout`, `interval`: seconds. Raises Celery's TimeoutError, and, with `propagate`, the task's error;
        CeleriacError in a handler that waits for a task it has enqueued itself: the task is inserted only with the
        handler's outcome.
        """
        if self.ignored:
            return None
        if not self._cache:
            waiting.refuse_in_handler([self.id])
            if self.app.ambient is not no_ambient:
                await self.app.beside.call(lambda: waiting.refuse(self.app, [self.id]))
        meta = self._cache or await self.backend.awaited(self.id, timeout, interval)
        return await self.app.beside.run(lambda: self._end(meta, propagate))

    def _end(self, meta: Any, propagate: bool) -> Any:
        if self._cache is None:
            self._maybe_set_cache(self.backend.with_children(meta))
        if propagate and meta["status"] in PROPAGATE_STATES and self.parent:
            self._maybe_reraise_parent_error()
        return self.maybe_throw(propagate=propagate)

    def aprogress(self, timeout: float | None = None, *, interval: float = 0.5) -> AsyncIterator[Any]:
        """Iterate over the values that the handler stores by `progress()`, until the task ends.

        `async for value in result.aprogress(): …`. The current value comes first, if there is one; values overwritten
        between two polls are left out. `aget` returns how the task ended. `timeout`: seconds in all, then Celery's
        TimeoutError is raised. A task that does not exist yet is awaited, as by `get`.
        """
        values: AsyncIterator[Any] = self.backend.progress_of(self.id, timeout, interval)
        return values

    def _maybe_reraise_parent_error(self) -> None:
        """Raise the error of the first failed task before this one in the chain, if any."""
        before = [result for node in reversed(list(self._parents())) for result in _tasks_of(node)]
        unknown = [result.id for result in before if result._cache is None]
        failed = self.backend.failed_of(unknown) if unknown else set()
        for result in before:
            if result._cache is not None or result.id in failed:
                result.maybe_throw()


class EagerRowResult(EagerResult):
    """The result of an eager call."""

    async def aget(self, *_: Any, propagate: bool = True, **__: Any) -> Any:
        return self.get(propagate=propagate, disable_sync_subtasks=False)

    async def aprogress(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Yield nothing: the call has ended."""
        nothing: tuple[Any, ...] = ()
        for value in nothing:
            yield value


def _tasks_of(node: Any) -> Iterator[Any]:
    """Yield the results of single tasks within a result of any kind."""
    if not isinstance(node, ResultSet):
        yield node
        return
    for result in node.results:
        yield from _tasks_of(result)
