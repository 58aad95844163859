"""Notes when each build begins and ends, from inside the worker's processes (`--include demo.instasites.witness`).

The row alone could not tell: it has one owner, while a worker that lost it may still be running its handler.
"""

from __future__ import annotations

import os
from typing import Any

from celery import signals
from sqlalchemy import Connection, text

from tasks.app import app

WATCHED = "instasite_build"

OPEN = text("SELECT id, pid FROM demo_runs WHERE site = :site AND ended IS NULL")
BEGAN = text("INSERT INTO demo_runs (site, pid) VALUES (:site, :pid) RETURNING id")
ENDED = text("UPDATE demo_runs SET ended = clock_timestamp() WHERE id = :id")

#: The run under way; a process runs one task at a time.
_open: list[int] = []


@signals.task_prerun.connect  # type: ignore[untyped-decorator]
def began(task: Any, kwargs: Any, **_: Any) -> None:
    if task.name != WATCHED:
        return
    site = kwargs["instasite_id"]
    with app.database.statement() as connection:
        _close_what_died(connection, site)
        _open.append(connection.execute(BEGAN, {"site": site, "pid": os.getpid()}).scalar_one())


@signals.task_postrun.connect  # type: ignore[untyped-decorator]
def ended(task: Any, **_: Any) -> None:
    if task.name == WATCHED:
        with app.database.statement() as connection:
            connection.execute(ENDED, {"id": _open.pop()})


def _close_what_died(connection: Connection, site: int) -> None:
    """A killed process notes no end. What is certain: its run is over once the process is gone."""
    for run, pid in connection.execute(OPEN, {"site": site}).all():
        if not _lives(pid):
            connection.execute(ENDED, {"id": run})


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
