"""Refuses to wait for tasks that come only once the waiting code has gone on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import text

from celeriac.errors import CeleriacError
from celeriac.run import run as running
from celeriac.seam.app import ResultsApp
from celeriac.store.connections import Database

UNFINISHED = text("SELECT task_id FROM celeriac.tasks WHERE task_id = ANY (CAST(:task_ids AS text[]))")


def refuse(app: ResultsApp, task_ids: Collection[str]) -> None:
    """Raise CeleriacError for a task that comes with this handler's outcome, or with the commit of a transaction that a
    framework has open around the caller.
    """
    refuse_in_handler(task_ids)
    ambient = app.ambient()
    if ambient is None:
        return
    coming = ambient.brings(task_ids)
    if ambient.connection is not None:
        coming |= seen_alone(app.database, ambient.connection, task_ids)
    if coming:
        raise CeleriacError(
            f"task {min(coming)} comes with the commit of the transaction that is open here, which would wait for "
            "ever: read its result after that, or enqueue it outside of the transaction"
        )


def refuse_in_handler(task_ids: Collection[str]) -> None:
    """Raise CeleriacError for a task that comes with this handler's outcome."""
    run = running.current()
    coming = () if run is None or run.settled else {task.task_id for task in run.follow_ups}.intersection(task_ids)
    if coming:
        raise CeleriacError(
            f"task {min(coming)} comes with the outcome of this handler, which would wait for ever: return, or enqueue "
            "it with `using(session=…)` in a transaction that is committed before"
        )


def seen_alone(database: Database, own: Any, task_ids: Collection[str]) -> set[str]:
    """Return which of the tasks this transaction alone sees. One that is gone by the end was ended meanwhile."""
    if here := _unfinished(own, task_ids):
        with database.reading() as connection:
            here -= _unfinished(connection, here)
    return _unfinished(own, here) if here else here


def _unfinished(connection: Any, task_ids: Collection[str]) -> set[str]:
    return set(connection.execute(UNFINISHED, {"task_ids": list(task_ids)}).scalars())
