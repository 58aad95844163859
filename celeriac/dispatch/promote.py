"""Promote: rows whose time has come become ready, or line up behind their lock's leader."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from celeriac.settle.look import lead

# INVARIANT: a keyed row never takes the lead here; celeriac_lead decides who does. Ids as an array: see `claim`.
DUE = text("""
WITH due AS (
    SELECT id FROM worker_tasks
    WHERE role = :role AND waits_for = 'time' AND scheduled_for <= statement_timestamp()
    ORDER BY scheduled_for LIMIT :batch FOR UPDATE SKIP LOCKED
)
UPDATE worker_tasks t
SET waits_for = CASE WHEN t.lock_key IS NULL THEN NULL ELSE 'lock' END, updated_at = clock_timestamp()
WHERE t.id = ANY (ARRAY(SELECT id FROM due))
RETURNING t.id, t.lock_key, t.started_at IS NOT NULL AND (t.retry_count > 0 OR t.tries = 0) AS began
""")

# Each LIMIT has its index's ORDER BY: see `select`.
ROLES_WITH_DUE = text("""
SELECT r.role FROM roles r, LATERAL (
    SELECT FROM worker_tasks WHERE role = r.role AND waits_for = 'time' AND scheduled_for <= statement_timestamp()
    ORDER BY scheduled_for LIMIT 1) AS due
WHERE NOT r.paused ORDER BY r.role
""")

HAS_DUE = text("""
SELECT true FROM worker_tasks
WHERE role = :role AND waits_for = 'time' AND scheduled_for <= statement_timestamp() ORDER BY scheduled_for LIMIT 1
""")


@dataclass(frozen=True, slots=True)
class Promoted:
    """How many rows there were, and the ids of those that go on within a round they have begun."""

    count: int
    begun: list[int]


def promote_due(connection: Connection, role: str, batch: int) -> Promoted:
    """Up to `batch` due rows of the role."""
    rows = connection.execute(DUE, {"role": role, "batch": batch}).all()
    lead(connection, [row.lock_key for row in rows if row.lock_key is not None])
    return Promoted(len(rows), [row.id for row in rows if row.began])


def has_due(connection: Connection, role: str) -> bool:
    return connection.execute(HAS_DUE, {"role": role}).scalar_one_or_none() is not None


def roles_with_due(connection: Connection) -> list[str]:
    """Registered roles, not paused, with a row whose time has come."""
    return list(connection.execute(ROLES_WITH_DUE).scalars())
