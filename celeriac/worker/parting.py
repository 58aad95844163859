"""Shutdown: a worker whose grace period is over hands back what its processes have, and sends events about it.

The processes are killed next, so they report nothing about these tasks themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from celery.worker.state import reserved_requests
from sqlalchemy import Connection

from celeriac.insights.fleet import held
from celeriac.insights.fleet.held import Row
from celeriac.run import journal, shared, traces
from celeriac.run.journal import Journal
from celeriac.settle import release
from celeriac.store.connections import Database
from celeriac.store.states import PENDING
from celeriac.worker.herald import event_of

WHY = "its worker stopped"

#: How many tasks events are sent about at most; a worker holds few more than it runs.
MOST = 10_000


def hand_back(database: Database, events: Journal, processes: Iterable[int]) -> bool:
    """Free the tasks of this worker's tickets; return whether somebody had some of them locked."""
    me = shared.worker_id()
    rows = _known(database) if shared.telling() else []
    with database.transaction() as connection:
        tokens = release.of_process(connection, me, None)
        freed = release.release(connection, tokens, started=True, kind="handed_back", why=WHY, by=me, loss=False)
        kept = release.still_held(connection, tokens)
    waits = {task.id for task in freed if task.becomes == PENDING}
    _tell(events, [row for row in rows if row["id"] in waits], shared.current(processes))
    return bool(kept)


def hand_back_unstarted(database: Database) -> None:
    """Hand back tickets that this process has taken from Redis and that nobody here has begun."""
    tokens = [token for _, _, token in (request.args for request in list(reserved_requests)) if token]
    with database.transaction() as connection:
        release.release(
            connection, tokens, started=False, kind="handed_back", why=WHY, by=shared.worker_id(), loss=False
        )


def _known(database: Database) -> list[Row]:
    with database.reading() as connection:
        return held.held(connection, shared.worker_id(), [], most=MOST)


def _tell(events: Journal, rows: Iterable[Row], began: Collection[int]) -> None:
    """Send events about those that wait again; the event reporter sends those about tasks cancelled meanwhile."""
    for row in rows:
        again = event_of(row | {"kind": "handed_back", "became": PENDING, "why": WHY, "node": None})
        if row["id"] not in began:
            again = journal.event("task-rejected", again["uuid"], again["name"], requeue=True)
        events.write(again)
    events.flush()


def release_lost(connection: Connection, url: str, tokens: Sequence[str]) -> list[str]:
    """Release the tickets of lost processes and return those that are locked.
    A task that had not begun counts no loss.
    """
    traces.spare(connection, url, tokens)
    release.release(
        connection, tokens, started=True, kind="worker_lost", why="its process was lost", by=shared.worker_id(),
        loss=True,
    )  # fmt: skip
    return list(release.still_held(connection, tokens))
