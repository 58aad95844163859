"""Parking: move tasks of an account that is paused, or has a cap of 0, to where no pass reads them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from celeriac.store import look
from celeriac.store.plans import lookups
from celeriac.store.ready import placed

# INVARIANT: FOR SHARE, so that whoever resumes the account waits, and then sees what was parked. An account whose
# policy somebody has locked is left alone this time: waiting for it would stop all other accounts of the role. A parked
# task gives up its lock key to the next task that waits for it.
PARK = text("""
WITH shut AS MATERIALIZED (
    SELECT account FROM celeriac.account_policies
    WHERE account = ANY (CAST(:accounts AS text[])) AND (paused OR cap = 0) ORDER BY account FOR SHARE SKIP LOCKED
), taken AS (
    SELECT entry.tableoid, entry.ctid FROM shut, LATERAL (
        SELECT tableoid, ctid FROM celeriac.ready WHERE role = :role AND account = shut.account
        ORDER BY priority DESC, due_at, id LIMIT :batch FOR UPDATE SKIP LOCKED) AS entry
), gone AS (
    DELETE FROM celeriac.ready r USING taken
    WHERE r.ctid = taken.ctid AND r.tableoid = taken.tableoid AND r.ctid = ANY (ARRAY(SELECT ctid FROM taken))
    RETURNING r.*
), moved AS (
    INSERT INTO celeriac.parked (account, role, priority, due_at, id)
    SELECT account, role, priority, due_at, id FROM gone
), unlocked AS (
    DELETE FROM celeriac.locks WHERE ctid = ANY (ARRAY(
        SELECT l.ctid FROM gone, LATERAL (
            SELECT lock_key FROM celeriac.tasks WHERE id = gone.id LIMIT 1) AS t, LATERAL (
            SELECT ctid FROM celeriac.locks WHERE lock_key = t.lock_key AND head = gone.id LIMIT 1) AS l))
    RETURNING lock_key
)
SELECT (SELECT count(*) FROM gone) AS parked, ARRAY(SELECT lock_key FROM unlocked) AS keys
""")

# INVARIANT: an account leaves `unparking` only once none of its tasks is parked; locked entries are skipped.
UNPARK = text(f"""
WITH open AS MATERIALIZED (
    SELECT u.account FROM celeriac.unparking u
    WHERE NOT EXISTS (SELECT FROM celeriac.account_policies p WHERE p.account = u.account AND (p.paused OR p.cap = 0))
    ORDER BY u.account LIMIT :batch FOR UPDATE OF u SKIP LOCKED
), taken AS (
    SELECT open.account, entry.ctid FROM open, LATERAL (
        SELECT ctid FROM celeriac.parked WHERE account = open.account
        ORDER BY role, priority DESC, due_at, id LIMIT :batch FOR UPDATE SKIP LOCKED) AS entry LIMIT :batch
), gone AS (
    DELETE FROM celeriac.parked WHERE ctid = ANY (ARRAY(SELECT ctid FROM taken)) RETURNING *
), tasks AS (
    SELECT gone.*, t.lock_key, t.losses
    FROM gone, LATERAL (SELECT lock_key, losses FROM celeriac.tasks WHERE id = gone.id LIMIT 1) AS t
), {placed("tasks")}, done AS (
    DELETE FROM celeriac.unparking u USING open
    WHERE u.account = open.account AND NOT EXISTS (
        SELECT FROM celeriac.parked p WHERE p.account = u.account
        OFFSET (SELECT count(*) FROM taken WHERE taken.account = u.account))
)
SELECT count(*) AS n, array_agg(DISTINCT role) AS roles, array_agg(lock_key) FILTER (WHERE lock_key IS NOT NULL) AS keys
FROM tasks
""")


def park(connection: Connection, role: str, accounts: Sequence[str], batch: int) -> int:
    """Park up to `batch` ready tasks of each of these accounts that is still shut, and return how many were parked."""
    with lookups(connection):
        done = connection.execute(PARK, {"role": role, "accounts": list(accounts), "batch": batch}).one()
    look.ask(connection, done[1])
    return int(done.parked)


def unpark(connection: Connection, batch: int) -> list[str]:
    """Take about `batch` tasks of resumed accounts out of `parked` and return their roles; no roles: none are left."""
    with lookups(connection):
        done = connection.execute(UNPARK, {"batch": batch}).one()
    look.ask(connection, done[2] or [])
    return list(done.roles or [])
