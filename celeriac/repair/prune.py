"""Prune: rows nobody needs any longer, a bounded batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from celeriac.repair.batch import BATCH

if TYPE_CHECKING:
    from celeriac.app import Celeriac

# INVARIANT: a role whose definition is unknown or says "forever" loses nothing. A success that is not to be kept
# went when it settled; what remains of such a role (failed, cancelled) stays for :days.
TASKS = text("""
DELETE FROM worker_tasks WHERE id = ANY (ARRAY(
    SELECT t.id FROM roles r, LATERAL (
        SELECT id FROM worker_tasks
        WHERE role = r.role AND status IN ('completed', 'failed', 'cancelled')
            AND completed_at < statement_timestamp() - coalesce(
                CASE WHEN r.definition ->> 'keep' <> 'forever'
                    THEN (r.definition ->> 'keep')::double precision * interval '1 second' END,
                :days * interval '1 day')
        ORDER BY completed_at LIMIT :batch
    ) AS t
    WHERE r.definition ->> 'keep' IS DISTINCT FROM 'forever'
    LIMIT :batch
))
""")

EVENTS = text("""
DELETE FROM task_events WHERE id IN (
    SELECT id FROM task_events WHERE at < statement_timestamp() - :days * interval '1 day' ORDER BY at LIMIT :batch)
""")

PASSES = text("""
DELETE FROM passes WHERE id IN (
    SELECT id FROM passes WHERE last_at < statement_timestamp() - :days * interval '1 day'
    ORDER BY last_at LIMIT :batch)
""")

WORKERS = text("""
DELETE FROM workers WHERE worker_id IN (
    SELECT worker_id FROM workers WHERE last_heartbeat_at < statement_timestamp() - :days * interval '1 day'
    LIMIT :batch)
""")


BEATS = text("""
DELETE FROM beats WHERE beat_id IN (
    SELECT beat_id FROM beats WHERE last_tick_at < statement_timestamp() - :days * interval '1 day' LIMIT :batch)
""")


def tasks(connection: Connection, days: float, batch: int) -> int:
    """Finished tasks past their role's `keep`; those of roles that keep no success, after `days`."""
    return connection.execute(TASKS, {"days": days, "batch": batch}).rowcount


def events(connection: Connection, days: float, batch: int) -> int:
    return connection.execute(EVENTS, {"days": days, "batch": batch}).rowcount


def passes(connection: Connection, days: float, batch: int) -> int:
    return connection.execute(PASSES, {"days": days, "batch": batch}).rowcount


def workers(connection: Connection, days: float, batch: int) -> int:
    return connection.execute(WORKERS, {"days": days, "batch": batch}).rowcount


def beats(connection: Connection, days: float, batch: int) -> int:
    return connection.execute(BEATS, {"days": days, "batch": batch}).rowcount


def prune_finished(app: Celeriac) -> int:
    """Finished tasks older than their role's `keep`; events, passes, worker and beat rows past their periods."""
    days, hours = app.settings.event_days, app.settings.pass_hours
    rest = ((events, days), (passes, hours / 24), (workers, days), (beats, hours / 24))
    return prune_tasks(app) + sum(_prune(app, delete, period) for delete, period in rest)


def prune_tasks(app: Celeriac) -> int:
    """Finished tasks older than their role's `keep`."""
    return _prune(app, tasks, app.settings.event_days)


def _prune(app: Celeriac, delete: Callable[[Connection, float, int], int], days: float) -> int:
    gone = 0
    while True:
        with app.database.transaction() as connection:
            deleted = delete(connection, days, BATCH)
        gone += deleted
        if deleted < BATCH:
            return gone
