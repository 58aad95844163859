"""Join: read a chord body's arguments from its members' rows as it starts; they are never stored with the body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from celeriac.store.states import COMPLETED

# A member that did not complete is returned even if it had no result to deliver.
MEMBERS = text("""
SELECT task_id, status, result, error_message, completed_at, place FROM celeriac.history_at(CAST(:barrier AS uuid))
WHERE place IS NOT NULL OR status <> 'completed' ORDER BY place, id
""")

#: SQL that is true if an unfinished body still has to read the result of `h`, a row of history with a barrier.
NEEDED = """EXISTS (
        SELECT FROM celeriac.tasks t WHERE CAST(t.headers -> 'canvas' ->> 'awaits' AS uuid) = h.barrier
            AND t.headers -> 'canvas' ->> 'awaits' IS NOT NULL)"""


@dataclass(frozen=True, slots=True)
class Missing:
    """A member that did not complete: `error` is its exception as JSON, if known, `message` the exception's text.

    Without a `task_id`, results are gone, and `message` says how many.
    """

    task_id: str | None
    error: Any
    message: str


@dataclass(frozen=True, slots=True)
class Joined:
    """The members' results as JSON, and the id of the member that ended last: Celery calls it the body's parent."""

    results: list[Any]
    last: str | None


def results(
    connection: Connection, barrier: str, shape: Sequence[Any] | None = None, places: int = 0
) -> Joined | Missing:
    """Return the members' results in their places, or the first member that has none.

    `shape`: the members' ids, with each group's in a list of its own. `places`: the least number of results.
    """
    rows = connection.execute(MEMBERS, {"barrier": barrier}).all()
    for row in rows:
        if row.status != COMPLETED:
            return Missing(row.task_id, row.result, row.error_message or row.status)
    if len(rows) < places:
        gone = f"the results of {places - len(rows)} of {places} members are not there any more"
        return Missing(None, None, gone)
    last = max(rows, key=lambda row: row.completed_at).task_id if rows else None
    if shape is None:
        return Joined([row.result for row in rows], last)
    by_id = {row.task_id: row.result for row in rows if row.place is not None}
    return Joined(_shaped(shape, by_id) + list(by_id.values()), last)


def _shaped(shape: Sequence[Any], by_id: dict[str, Any]) -> list[Any]:
    """Take the results of the shape's members out of `by_id`; what is left there was added to the chord later."""
    return [by_id.pop(part, None) if isinstance(part, str) else _shaped(part, by_id) for part in shape]


def arguments(args: Sequence[Any], kwargs: dict[str, Any], joins: Any, values: list[Any]) -> tuple[Any, Any]:
    """Return the body's arguments with the results in them: first, or under the name `joins`."""
    return ([values, *args[1:]], kwargs) if joins is True else (args, {**kwargs, joins: values})
