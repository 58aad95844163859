"""Lock keys somebody waits for and nobody who can run leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from celeriac.repair.batch import BATCH
from celeriac.settle.look import lead

if TYPE_CHECKING:
    from celeriac.app import Celeriac

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


def leaderless_locks(app: Celeriac) -> int:
    """Lock keys somebody waits for and nobody leads, or only a paused role does, get a leader who can run.

    The former takes an enqueue in a caller's transaction that saw a leader which settled before it committed.
    """
    given, first = 0, ""
    while True:
        with app.database.transaction() as connection:
            led, following = lead_where_nobody_can(connection, first, BATCH)
        given += led
        if following is None:
            return given
        first = following
