"""Mend lock keys whose holder is missing, or held back while others could run, and barriers whose members have
finished.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from celeriac.repair.app import Kick, RepairApp
from celeriac.repair.batch import BATCH, Walk
from celeriac.store import look
from celeriac.store.connections import Database
from celeriac.store.plans import lookups

#: Maximum number of keys, and of barriers, that a sweep walks over; the next sweep continues.
MOST_KEYS = 5_000

# INVARIANT of `keys`: a loose walk over the distinct keys that are waited for, one descent each. `missing`: no lock
# holder, or a finished one. `gives_way`: the holder is unclaimed and held back, and another task is not.
HEADS = text("""
WITH RECURSIVE keys AS (
    (SELECT lock_key FROM celeriac.behind WHERE lock_key >= :first ORDER BY lock_key LIMIT 1)
    UNION ALL
    SELECT next.lock_key FROM keys, LATERAL (
        SELECT lock_key FROM celeriac.behind WHERE lock_key > keys.lock_key ORDER BY lock_key LIMIT 1) AS next
), walked AS (SELECT lock_key FROM keys LIMIT :batch)
SELECT walked.lock_key, head.id IS NULL AS missing, lock.head,
    CASE WHEN EXISTS (SELECT FROM celeriac.held_back(head.role, head.account)) AND (
        SELECT true FROM celeriac.behind b
        WHERE b.lock_key = walked.lock_key AND NOT EXISTS (SELECT FROM celeriac.held_back(b.role, b.account))
        ORDER BY b.priority DESC, b.due_at, b.id LIMIT 1) THEN head.id END AS gives_way
FROM walked
LEFT JOIN LATERAL (SELECT head FROM celeriac.locks l WHERE l.lock_key = walked.lock_key LIMIT 1) AS lock ON true
LEFT JOIN LATERAL (
    SELECT t.id, t.role, t.account FROM celeriac.tasks t WHERE t.id = lock.head LIMIT 1) AS head ON true
ORDER BY walked.lock_key
""")

# INVARIANT: a loose walk over the distinct barriers, one descent each.
BARRIERS = text("""
WITH RECURSIVE walk AS (
    (SELECT barrier FROM celeriac.barriers WHERE barrier > CAST(:first AS uuid) ORDER BY barrier LIMIT 1)
    UNION ALL
    SELECT next.barrier FROM walk, LATERAL (
        SELECT barrier FROM celeriac.barriers WHERE barrier > walk.barrier ORDER BY barrier LIMIT 1) AS next
)
SELECT CAST(barrier AS text) FROM walk LIMIT :batch
""")

# The lock holder has finished, whatever happened to its process.
ORPHANED = text("""
DELETE FROM celeriac.locks l
WHERE l.lock_key = ANY (CAST(:keys AS text[]))
    AND (SELECT true FROM celeriac.tasks t WHERE t.id = l.head LIMIT 1) IS NULL
""")

# INVARIANT: only a lock holder that is ready, and stays ready until this commits.
GIVE_WAY = text("""
WITH entries AS MATERIALIZED (
    SELECT r.tableoid AS part, r.ctid AS place, t.lock_key
    FROM unnest(CAST(:ids AS bigint[])) AS i (id), LATERAL (
        SELECT celeriac.lane(role, queue) AS role, account, priority, scheduled_for, lock_key
        FROM celeriac.tasks WHERE id = i.id LIMIT 1) AS t,
    LATERAL (
        SELECT tableoid, ctid FROM celeriac.ready
        WHERE role = t.role AND account = t.account AND priority = t.priority AND due_at = t.scheduled_for
            AND id = i.id LIMIT 1 FOR UPDATE SKIP LOCKED) AS r
), gone AS (
    DELETE FROM celeriac.ready r USING entries e
    WHERE r.ctid = e.place AND r.tableoid = e.part AND r.ctid = ANY (ARRAY(SELECT place FROM entries))
    RETURNING r.role, r.account, r.priority, r.due_at, r.id, e.lock_key
), behind AS (
    INSERT INTO celeriac.behind (lock_key, priority, due_at, id, role, account)
    SELECT lock_key, priority, due_at, id, role, account FROM gone
)
DELETE FROM celeriac.locks l USING gone
WHERE l.lock_key = gone.lock_key AND l.head = gone.id AND l.lock_key = ANY (ARRAY(SELECT lock_key FROM gone))
RETURNING l.lock_key
""")


def give_heads(connection: Connection, first: str, batch: int) -> tuple[list[str], str | None]:
    """Walk over `batch` keys from `first` on, free those that may get another holder, and return these and the next
    place.
    """
    with lookups(connection):
        rows = connection.execute(HEADS, {"first": first, "batch": batch + 1}).all()
    following = rows[batch].lock_key if len(rows) > batch else None
    missing = [row.lock_key for row in rows[:batch] if row.missing]
    if orphaned := [row.lock_key for row in rows[:batch] if row.missing and row.head is not None]:
        with lookups(connection):
            connection.execute(ORPHANED, {"keys": orphaned})
    blocked = [row.gives_way for row in rows[:batch] if row.gives_way is not None]
    free = _give_way(connection, blocked) if blocked else []
    look.ask(connection, [*missing, *free])
    return [*missing, *free], following


def _give_way(connection: Connection, heads: list[int]) -> list[str]:
    with lookups(connection):
        return list(connection.execute(GIVE_WAY, {"ids": heads}).scalars())


_walk = Walk("", MOST_KEYS // BATCH)
_barriers = Walk("00000000-0000-0000-0000-000000000000", MOST_KEYS // BATCH)


def hand_over(app: RepairApp) -> int:
    """Hand over lock keys, and let tasks through whose barrier has no unfinished member."""

    def batch(first: str) -> tuple[int, str | None]:
        with app.database.transaction() as connection:
            keys, following = give_heads(connection, first, BATCH)
        return len(keys), following

    return _walk.sweep(batch) + let_through(app.database, app.kick)


def let_through(database: Database, kick: Kick) -> int:
    """Let tasks through at barriers without an unfinished member; return how many roles got work."""

    def batch(first: str) -> tuple[int, str | None]:
        with database.transaction() as connection, lookups(connection):
            barriers = connection.execute(BARRIERS, {"first": first, "batch": BATCH}).scalars().all()
        with database.statement() as connection:
            roles = look.let_through(connection, barriers)
        kick(roles)
        return len(roles), barriers[-1] if len(barriers) == BATCH else None

    return _barriers.sweep(batch)
