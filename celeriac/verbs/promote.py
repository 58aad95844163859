"""Promote: rows whose time has come become ready, or line up behind their lock's leader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

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

LEAD = text("SELECT celeriac_lead(CAST(:keys AS text[]))")

# INVARIANT of `keys`: a loose walk over the distinct keys somebody waits for, one descent each.
LEADERLESS = text("""
WITH RECURSIVE keys AS (
    (SELECT lock_key FROM worker_tasks WHERE waits_for = 'lock' AND lock_key >= :first ORDER BY lock_key LIMIT 1)
    UNION ALL
    SELECT next.lock_key FROM keys, LATERAL (
        SELECT lock_key FROM worker_tasks
        WHERE waits_for = 'lock' AND lock_key > keys.lock_key ORDER BY lock_key LIMIT 1) AS next
), walked AS (SELECT lock_key FROM keys LIMIT :batch
), paused AS (SELECT ARRAY(SELECT role FROM roles WHERE paused) AS roles
)
SELECT lock_key, leader.id IS NULL AS leaderless,
    CASE WHEN leader.status = 'pending' AND (leader.role = ANY (paused.roles)
        OR (SELECT p.paused OR p.cap = 0 FROM account_policies p WHERE p.account = leader.account)
    ) AND (
        SELECT true FROM worker_tasks w
        WHERE waits_for = 'lock' AND lock_key = walked.lock_key AND role <> ALL (paused.roles)
            AND (SELECT p.paused OR p.cap = 0 FROM account_policies p WHERE p.account = w.account) IS NOT TRUE
        ORDER BY priority DESC, scheduled_for, id LIMIT 1) THEN leader.id END AS gives_way
FROM walked CROSS JOIN paused LEFT JOIN LATERAL (
    SELECT id, status, role, account FROM worker_tasks l
    WHERE l.lock_key = walked.lock_key AND l.waits_for IS NULL AND l.status IN ('pending', 'claimed', 'running')
    LIMIT 1
) AS leader ON true
ORDER BY lock_key
""")

GIVE_WAY = text("""
WITH held AS (
    SELECT id FROM worker_tasks
    WHERE id = ANY(CAST(:ids AS bigint[])) AND status = 'pending' AND waits_for IS NULL FOR UPDATE SKIP LOCKED
)
UPDATE worker_tasks SET waits_for = 'lock', updated_at = clock_timestamp() WHERE id = ANY (ARRAY(SELECT id FROM held))
RETURNING lock_key
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


def lead(connection: Connection, keys: Sequence[str]) -> int:
    """Gives each of these lock keys its next leader, where it has none and somebody waits; how many got one."""
    if not keys:
        return 0
    return int(connection.execute(LEAD, {"keys": sorted(set(keys))}).scalar_one())


def lead_where_nobody_can(connection: Connection, first: str, batch: int) -> tuple[int, str | None]:
    """Of `batch` keys from `first` on: how many got a leader who can run, and where to go on.

    Those that somebody waits for and nobody leads, or a task that is held back (its role or account is paused, or its
    account's cap is 0) while another could run.
    """
    rows = connection.execute(LEADERLESS, {"first": first, "batch": batch + 1}).all()
    following = rows[batch].lock_key if len(rows) > batch else None
    blocked = [row.gives_way for row in rows[:batch] if row.gives_way is not None]
    free = list(connection.execute(GIVE_WAY, {"ids": blocked}).scalars()) if blocked else []
    return lead(connection, [*free, *(row.lock_key for row in rows[:batch] if row.leaderless)]), following
