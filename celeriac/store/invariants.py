"""Invariants of the state tables, which every commit keeps, whoever made it.

To check them reads every unfinished task: for tests, and for an operator on request.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

#: Maximum number of violations of each invariant that are shown.
MOST = 100

_ENTRIES = """
    SELECT id, 'ready' AS room FROM celeriac.ready
    UNION ALL SELECT id, 'later' FROM celeriac.later
    UNION ALL SELECT id, 'behind' FROM celeriac.behind
    UNION ALL SELECT id, 'parked' FROM celeriac.parked
    UNION ALL SELECT id, 'barriers' FROM celeriac.barriers
    UNION ALL SELECT unnest(ids), 'a ticket' FROM celeriac.tickets"""

# Tasks that may run or are running: only these hold lock keys.
_MAY_RUN = "SELECT id FROM celeriac.ready UNION ALL SELECT unnest(ids) FROM celeriac.tickets"

#: Each statement finds what breaks one invariant, in one snapshot, and returns a line for it.
INVARIANTS = (
    # An unfinished task is in exactly one state table.
    f"""
SELECT 'task ' || t.id || ' is in ' || coalesce(string_agg(e.room, ' and ' ORDER BY e.room), 'no room')
FROM celeriac.tasks t LEFT JOIN ({_ENTRIES}) AS e ON e.id = t.id
GROUP BY t.id HAVING count(e.room) <> 1 ORDER BY t.id""",
    # Each entry of a state table has its task.
    f"""
SELECT 'task ' || e.id || ' is in ' || e.room || ', and is no unfinished task' FROM ({_ENTRIES}) AS e
WHERE NOT EXISTS (SELECT FROM celeriac.tasks t WHERE t.id = e.id) ORDER BY e.id, e.room""",
    # No ticket is empty.
    """
SELECT 'ticket ' || token || ' is empty' FROM celeriac.tickets WHERE cardinality(ids) = 0 ORDER BY token""",
    # A lock holder is an unfinished task with that lock key.
    """
SELECT 'lock key ' || l.lock_key || ' has the head ' || l.head || ', which is no unfinished task with that key'
FROM celeriac.locks l
WHERE NOT EXISTS (SELECT FROM celeriac.tasks t WHERE t.id = l.head AND t.lock_key = l.lock_key) ORDER BY l.lock_key""",
    # A lock holder may run or is running.
    f"""
SELECT 'lock key ' || l.lock_key || ' has the head ' || l.head || ', which is neither ready nor in a ticket'
FROM celeriac.locks l LEFT JOIN ({_MAY_RUN}) AS may_run ON may_run.id = l.head
WHERE may_run.id IS NULL ORDER BY l.lock_key""",
    # A task that may run or is running holds its lock key.
    f"""
SELECT 'task ' || t.id || ' is ready or in a ticket, and not the head of its lock key ' || t.lock_key
FROM ({_MAY_RUN}) AS may_run JOIN celeriac.tasks t ON t.id = may_run.id
WHERE t.lock_key IS NOT NULL
    AND NOT EXISTS (SELECT FROM celeriac.locks l WHERE l.lock_key = t.lock_key AND l.head = t.id) ORDER BY t.id""",
    # No task is in `tasks` and in `history`.
    """
SELECT 'task ' || t.id || ' is unfinished, and in the history' FROM celeriac.tasks t
WHERE EXISTS (SELECT FROM celeriac.history h WHERE h.id = t.id) ORDER BY t.id""",
    # An entry has the same values as its task's row, because it is found by them.
    """
SELECT 'ready has other values of task ' || t.id || ' than its row'
FROM celeriac.ready e JOIN celeriac.tasks t USING (id)
WHERE (e.role, e.account, e.priority, e.due_at) <>
    (celeriac.lane(t.role, t.queue), t.account, t.priority, t.scheduled_for) ORDER BY t.id""",
    """
SELECT 'later has other values of task ' || t.id || ' than its row'
FROM celeriac.later e JOIN celeriac.tasks t USING (id)
WHERE (e.role, e.account, e.due_at) <>
    (celeriac.lane(t.role, t.queue), t.account, t.scheduled_for) ORDER BY t.id""",
    """
SELECT 'behind has other values of task ' || t.id || ' than its row'
FROM celeriac.behind e JOIN celeriac.tasks t USING (id)
WHERE (e.lock_key, e.role, e.account, e.priority, e.due_at)
    IS DISTINCT FROM (t.lock_key, celeriac.lane(t.role, t.queue), t.account, t.priority, t.scheduled_for)
ORDER BY t.id""",
    """
SELECT 'parked has other values of task ' || t.id || ' than its row'
FROM celeriac.parked e JOIN celeriac.tasks t USING (id)
WHERE (e.role, e.account, e.priority, e.due_at) <>
    (celeriac.lane(t.role, t.queue), t.account, t.priority, t.scheduled_for) ORDER BY t.id""",
    """
SELECT 'ticket ' || k.token || ' has other values of task ' || t.id || ' than its row'
FROM celeriac.tickets k, unnest(k.ids, k.accounts) AS e (id, account) JOIN celeriac.tasks t ON t.id = e.id
WHERE (k.role, e.account) IS DISTINCT FROM (celeriac.lane(t.role, t.queue), t.account) ORDER BY t.id""",
)


def violations(connection: Connection) -> list[str]:
    """Return a line for each violation, at most `MOST` for each invariant; none if all is well."""
    return [
        line for statement in INVARIANTS for line in connection.execute(text(f"{statement} LIMIT {MOST}")).scalars()
    ]
