"""Sweeps: periodic repairs, each in bounded batches until one is short. A pass over nothing costs one statement."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from celeriac import alerts
from celeriac.states import RUNNING
from celeriac.verbs import audit, promote, prune, release
from celeriac.verbs.audit import Change

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

BATCH = 500


def rescue(app: Celeriac, *, minutes: float | None = None, operator: str | None = None) -> int:
    """Running tasks whose worker fell silent wait again (or fail, if lost too often).

    Silent for so many minutes, or for their role's `stale_after`. `operator`: who asked for it, for the audit trail.
    """
    rescued = 0
    while True:
        with app.database.transaction() as connection:
            held = release.stale(connection, BATCH, minutes)
            freed = release.free(
                connection, held, status="running", kind="rescue", why="its worker fell silent",
                by=operator or app.process_name, loss=True,
            )  # fmt: skip
            if operator is not None:
                changes = [Change(str(f.id), {"status": RUNNING}, {"status": f.becomes}) for f in freed]
                audit.write(connection, "recover-stale", "task", changes, by=operator)
        rescued += len(freed)
        if len(held) < BATCH:
            return rescued


def lost_tickets(app: Celeriac) -> int:
    """Claimed tasks whose ticket is in no queue wait again. A ticket that merely queues is left alone.

    One in the memory of a worker that is busy is freed as well: whoever comes free first gets it, and the late ticket
    starts nothing. If Redis cannot be asked, nothing is known to be lost.
    """
    with app.database.statement() as connection:
        suspects = release.unstarted(connection, app.settings.ticket_grace)
    queued = {queue: app.publisher.queued(queue) for queue in {s.queue for s in suspects}}
    lost = [s for s in suspects if (ids := queued[s.queue]) is not None and s.id not in ids]
    freed = 0
    for some in (lost[i : i + BATCH] for i in range(0, len(lost), BATCH)):
        with app.database.transaction() as connection:
            freed += len(
                release.release(
                    connection,
                    some,
                    status="claimed",
                    kind="ticket_lost",
                    why="its ticket was lost",
                    by=app.process_name,
                    loss=False,
                )
            )
    return freed


def leaderless_locks(app: Celeriac) -> int:
    """Lock keys somebody waits for and nobody leads get a leader.

    That takes an enqueue that saw a leader which settled before the enqueue committed.
    """
    given, first = 0, ""
    while True:
        with app.database.transaction() as connection:
            keys, following = promote.leaderless(connection, first, BATCH)
            given += promote.lead(connection, keys)
        if following is None:
            return given
        first = following


def prune_finished(app: Celeriac) -> int:
    """Finished tasks older than their role's `keep`, events, passes and worker rows past their periods."""
    gone = 0
    for delete in (prune.tasks, prune.events, prune.passes, prune.workers):
        days = app.settings.pass_hours / 24 if delete is prune.passes else app.settings.event_days
        while True:
            with app.database.transaction() as connection:
                deleted = delete(connection, days, BATCH)
            gone += deleted
            if deleted < BATCH:
                break
    return gone


SWEEPS: dict[str, Callable[[Celeriac], int]] = {
    "rescue": rescue,
    "lost_tickets": lost_tickets,
    "leaderless_locks": leaderless_locks,
    "prune": prune_finished,
    "alerts": alerts.review,
}


def sweep(app: Celeriac, name: str) -> int:
    """Runs one sweep to its end; how many rows it repaired or removed."""
    done = SWEEPS[name](app)
    if done:
        logger.info("Sweep %s: %d", name, done)
    return done
