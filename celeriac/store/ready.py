"""SQL shared by statements about ready tasks: insert them, and walk over their accounts in turn."""

from __future__ import annotations


def placed(of: str) -> str:
    """Return CTEs that put the tasks of the CTE `of` into `behind` if they have a lock key, and into `ready` if not.

    `of` has their id, role, account, priority, due_at, lock_key and losses. The caller requests a check of the keys.
    """
    return f"""to_ready AS (
    INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id, losses)
    SELECT (SELECT seg FROM celeriac.ring), role, account, priority, due_at, id, least(losses, 9) FROM {of}
    WHERE lock_key IS NULL
), to_behind AS (
    INSERT INTO celeriac.behind (lock_key, priority, due_at, id, role, account)
    SELECT lock_key, priority, due_at, id, role, account FROM {of} WHERE lock_key IS NOT NULL
)"""


#: The accounts of a role that have ready tasks, by name, from a cursor on and around to it.
#:
#: INVARIANT of `onward`, `around`: each step is one descent into `ready_in_order`, to the next account with an entry.
#: `around` is read only if `onward` ran out of accounts first.
TURNS = """
WITH RECURSIVE onward AS (
    (SELECT account FROM celeriac.ready WHERE role = :role AND account > :cursor ORDER BY account LIMIT 1)
    UNION ALL
    SELECT next.account FROM onward, LATERAL (
        SELECT account FROM celeriac.ready
        WHERE role = :role AND account > onward.account ORDER BY account LIMIT 1) AS next
), around AS (
    (SELECT account FROM celeriac.ready WHERE role = :role AND account <= :cursor ORDER BY account LIMIT 1)
    UNION ALL
    SELECT next.account FROM around, LATERAL (
        SELECT account FROM celeriac.ready
        WHERE role = :role AND account > around.account AND account <= :cursor ORDER BY account LIMIT 1) AS next
)"""
