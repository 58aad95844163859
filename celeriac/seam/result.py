"""Celery's results of tasks that are rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from celery.result import AsyncResult, ResultSet


class RowResult(AsyncResult):
    """Celery's, but who waits for a chord's body asks for all of its members in one statement a look."""

    def _maybe_reraise_parent_error(self) -> None:
        """Raises what the first of those before it failed with, if one did."""
        before = [result for node in reversed(list(self._parents())) for result in _tasks_of(node)]
        unknown = [result.id for result in before if result._cache is None]
        failed = self.backend.failed_of(unknown) if unknown else set()
        for result in before:
            if result._cache is not None or result.id in failed:
                result.maybe_throw()


def _tasks_of(node: Any) -> Iterator[Any]:
    """The results of single tasks in a result of whatever kind."""
    if not isinstance(node, ResultSet):
        yield node
        return
    for result in node.results:
        yield from _tasks_of(result)
