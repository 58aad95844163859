"""Promote: move tasks whose time has come to `ready`, or behind their lock key's holder."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from celeriac.store import look
from celeriac.store.plans import lookups
from celeriac.store.ready import placed

#: Maximum number of accounts that a pass checks separately, because another account's flood may hide their due tasks.
QUIET = 200

# INVARIANT: `earliest` follows due times, and `quiet` walks over accounts (one index descent each) from the pass's
# cursor on, so that no account waits behind another's backlog of due tasks. The post-commit check gives keyed tasks
# their lock key.
DUE = text(f"""
WITH RECURSIVE earliest AS (
    SELECT ctid FROM celeriac.later WHERE role = :role AND due_at <= statement_timestamp()
    ORDER BY due_at LIMIT :batch FOR UPDATE SKIP LOCKED
), onward AS (
    (SELECT account FROM celeriac.later
        WHERE role = :role AND account > :cursor AND (SELECT count(*) FROM earliest) = :batch
        ORDER BY account LIMIT 1)
    UNION ALL
    SELECT next.account FROM onward, LATERAL (
        SELECT account FROM celeriac.later WHERE role = :role AND account > onward.account
        ORDER BY account LIMIT 1) AS next
), around AS (
    (SELECT account FROM celeriac.later
        WHERE role = :role AND account <= :cursor AND (SELECT count(*) FROM earliest) = :batch
        ORDER BY account LIMIT 1)
    UNION ALL
    SELECT next.account FROM around, LATERAL (
        SELECT account FROM celeriac.later WHERE role = :role AND account > around.account AND account <= :cursor
        ORDER BY account LIMIT 1) AS next
), accounts AS (
    SELECT account FROM (SELECT account FROM onward UNION ALL SELECT account FROM around) AS walk LIMIT :quiet
), quiet AS (
    SELECT first.ctid FROM accounts, LATERAL (
        SELECT ctid FROM celeriac.later
        WHERE role = :role AND account = accounts.account AND due_at <= statement_timestamp()
        ORDER BY due_at, id LIMIT least(16, greatest(1, :batch / (SELECT count(*) FROM accounts)))
        FOR UPDATE SKIP LOCKED) AS first
), gone AS (
    DELETE FROM celeriac.later
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM earliest UNION SELECT ctid FROM quiet)) RETURNING *
), due AS (
    SELECT gone.*, t.priority, t.lock_key, t.losses FROM gone JOIN celeriac.tasks t ON t.id = gone.id
    WHERE t.id = ANY (ARRAY(SELECT id FROM gone))
), {placed("due")}
SELECT id, lock_key, began FROM due
""")

# Each LIMIT has its index's ORDER BY: see `select`.
ROLES_WITH_DUE = text("""
SELECT r.role FROM celeriac.roles r, LATERAL (
    SELECT FROM celeriac.later WHERE role = r.role AND due_at <= statement_timestamp() ORDER BY due_at LIMIT 1) AS due
WHERE NOT r.paused ORDER BY r.role
""")

HAS_DUE = text("""
SELECT true FROM celeriac.later WHERE role = :role AND due_at <= statement_timestamp() ORDER BY due_at LIMIT 1
""")


@dataclass(frozen=True, slots=True)
class Promoted:
    """The number of promoted tasks, and the ids of those among them that are within a round they have begun."""

    count: int
    begun: list[int]


def promote_due(connection: Connection, role: str, batch: int, cursor: str = "") -> Promoted:
    """Promote the role's `batch` earliest due tasks; if more are due, also about as many, the first ones of the
    accounts after `cursor`.
    """
    with lookups(connection):
        rows = connection.execute(DUE, {"role": role, "batch": batch, "quiet": QUIET, "cursor": cursor}).all()
    look.ask(connection, [row.lock_key for row in rows])
    return Promoted(len(rows), [row.id for row in rows if row.began])


def has_due(connection: Connection, role: str) -> bool:
    return connection.execute(HAS_DUE, {"role": role}).scalar_one_or_none() is not None


def roles_with_due(connection: Connection) -> list[str]:
    """Return the registered roles, not paused, that have a task whose time has come."""
    return list(connection.execute(ROLES_WITH_DUE).scalars())
