"""Sweeps: periodic repairs, each in bounded batches until one is short. A pass over nothing costs one statement."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from celeriac import alerts
from celeriac.states import RUNNING
from celeriac.verbs import age, audit, promote, prune, release, review
from celeriac.verbs.age import Aging
from celeriac.verbs.audit import Change

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

#: Rows a transaction: few enough that whoever meets its locks hardly waits.
BATCH = 200


def rescue(app: Celeriac, *, minutes: float | None = None, operator: str | None = None) -> int:
    """Running tasks whose worker fell silent wait out their backoff (or fail, if lost too often).

    Silent for so many minutes, or for their role's `stale_after`. `operator`: who asked for it, for the audit trail.
    """
    return rescue_by_role(app, minutes=minutes, operator=operator).total()


def rescue_by_role(app: Celeriac, *, minutes: float | None = None, operator: str | None = None) -> Counter[str]:
    """How many of each role were freed."""
    rescued: Counter[str] = Counter()
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
        rescued.update(f.role for f in freed)
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
    """Lock keys somebody waits for and nobody leads, or only a paused role does, get a leader who can run.

    The former takes an enqueue in a caller's transaction that saw a leader which settled before it committed.
    """
    given, first = 0, ""
    while True:
        with app.database.transaction() as connection:
            led, following = promote.lead_where_nobody_can(connection, first, BATCH)
        given += led
        if following is None:
            return given
        first = following


def prune_finished(app: Celeriac) -> int:
    """Finished tasks older than their role's `keep`; events, passes, worker and beat rows past their periods."""
    days, hours = app.settings.event_days, app.settings.pass_hours
    rest = ((prune.events, days), (prune.passes, hours / 24), (prune.workers, days), (prune.beats, hours / 24))
    return prune_tasks(app) + sum(_prune(app, delete, period) for delete, period in rest)


def prune_tasks(app: Celeriac) -> int:
    """Finished tasks older than their role's `keep`."""
    return _prune(app, prune.tasks, app.settings.event_days)


def _prune(app: Celeriac, delete: Callable[[Connection, float, int], int], days: float) -> int:
    gone = 0
    while True:
        with app.database.transaction() as connection:
            deleted = delete(connection, days, BATCH)
        gone += deleted
        if deleted < BATCH:
            return gone


def promote_due(app: Celeriac) -> int:
    """Delayed and retrying tasks whose time has come are ready, and those of eager roles on their way."""
    return promote_by_role(app).total()


def promote_by_role(app: Celeriac) -> Counter[str]:
    """How many of each role were due."""
    with app.database.statement() as connection:
        names = promote.roles_with_due(connection)
    return Counter({name: _promote_role(app, name) for name in names})


def _promote_role(app: Celeriac, name: str) -> int:
    role, _ = app.role_named(name)
    done = 0 if role.eager else app.dispatcher.resume(role, BATCH)
    while True:
        with app.database.transaction() as connection:
            promoted = promote.promote_due(connection, name, BATCH).count
        done += promoted
        if promoted < BATCH:
            app.kick([name])
            return done


def raise_old(app: Celeriac) -> int:
    """What has waited long gains priority: see `celeriac.verbs.age`."""
    s = app.settings
    aging, raised = Aging(s.aging_after, s.aging_interval, int(s.aging_step), int(s.aging_ceiling)), 0
    while True:
        with app.database.transaction() as connection:
            some = age.age(connection, aging, BATCH)
        raised += some
        if some < BATCH:
            return raised


def review_queues(app: Celeriac) -> int:
    """The Queue Master's review: rescue, removal, promotion, each role's state; idle queues with work are woken."""
    rescued, promoted = rescue_by_role(app), promote_by_role(app)
    removed = prune_tasks(app)
    done = {role: {"rescued": rescued[role], "promoted": promoted[role]} for role in {*rescued, *promoted}}
    with app.database.transaction() as connection:
        idle = review.review(connection, app.process_name, done)
    app.kick(idle)
    return rescued.total() + promoted.total() + removed


SWEEPS: dict[str, Callable[[Celeriac], int]] = {
    "rescue": rescue,
    "lost_tickets": lost_tickets,
    "leaderless_locks": leaderless_locks,
    "prune": prune_finished,
    "promote": promote_due,
    "aging": raise_old,
    "review": review_queues,
    "alerts": alerts.review,
}


def sweep(app: Celeriac, name: str) -> int:
    """Runs one sweep to its end; how many rows it repaired or removed."""
    done = SWEEPS[name](app)
    if done:
        logger.info("Sweep %s: %d", name, done)
    return done
