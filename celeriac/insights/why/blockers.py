"""Blockers: find open or prepared transactions, and slow statements, that hold rows or tables the engine needs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from celeriac.insights.tasks.counting import oldest_in
from celeriac.store.plans import lookups
from celeriac.store.role_names import lane_of

#: Most blockers that are returned.
MOST = 20

#: Seconds for which a transaction may be open before it counts as a blocker; the engine's own are shorter.
LONG = 2.0

#: Most characters shown of its statement.
LONGEST = 120

#: Tables whose rows enqueues lock too, or nobody changes. Whoever holds rows of any other table blocks the engine.
OF_CALLERS = (
    "tasks", "ready", "later", "behind", "parked", "intake", "chain_rests", "barriers", "joins", "looks",
    "group_results", "history", "ended", "task_events", "task_logs", "audit", "ticks",
)  # fmt: skip

#: Lock modes that keep all others from writing to the table; a CREATE INDEX without CONCURRENTLY takes the first.
WHOLE = ("ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock")

# No view lists row locks: a blocker is seen only while somebody waits for it. The engine gives up soon and tries again,
# or skips what is locked. So a transaction also counts if it has been open for long and holds rows of tables that
# callers' enqueues never lock, or a whole table. Autovacuum gives way by itself. A prepared transaction has no process,
# so sessions that wait for it wait for process 0; the lock shows which transaction it is. If a session's visible state
# is without a transaction, that one has ended since its locks were read; without the rights to see other logins'
# sessions neither is visible.
BLOCKERS = text("""
WITH held AS MATERIALIZED (
    SELECT l.virtualtransaction AS holder, l.pid, array_agg(DISTINCT CAST(c.relname AS text)) AS tables,
        bool_or(l.mode = ANY (CAST(:whole AS text[]))
            OR coalesce(p.relname, c.relname) <> ALL (CAST(:of_callers AS text[]))) AS is_in_the_way,
        bool_or(l.mode = ANY (CAST(:whole AS text[]))) AS holds_tables
    FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
    LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
    WHERE l.locktype = 'relation' AND l.granted AND l.mode NOT IN ('AccessShareLock', 'ShareUpdateExclusiveLock')
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND c.relnamespace = CAST('celeriac' AS regnamespace) AND c.relkind IN ('r', 'p')
    GROUP BY l.virtualtransaction, l.pid
), waits AS MATERIALIZED (
    SELECT DISTINCT a.pid, blocker FROM pg_stat_activity a, unnest(pg_blocking_pids(a.pid)) AS blocker
    WHERE a.datname = current_database() AND a.wait_event_type = 'Lock' AND EXISTS (SELECT FROM held)
), waited_for AS MATERIALIZED (
    SELECT blocker, CAST(NULL AS text) AS holder, CAST(count(*) AS integer) AS n
    FROM waits WHERE blocker <> 0 GROUP BY blocker
    UNION ALL
    SELECT 0, theirs.virtualtransaction, CAST(count(DISTINCT waits.pid) AS integer)
    FROM waits JOIN pg_locks own ON own.pid = waits.pid AND NOT own.granted
    JOIN pg_locks theirs ON theirs.pid IS NULL AND theirs.granted AND theirs.locktype = own.locktype
        AND (theirs.transactionid = own.transactionid
            OR theirs.relation = own.relation AND theirs.database = own.database)
    WHERE waits.blocker = 0 GROUP BY theirs.virtualtransaction
)
SELECT t.*, CAST(extract(epoch FROM clock_timestamp() - t.since) AS double precision) AS seconds,
    held.holder, held.tables, held.holds_tables, coalesce(w.n, 0) AS waiting
FROM held CROSS JOIN LATERAL (
    SELECT a.pid, coalesce(a.usename, '') AS login, coalesce(a.application_name, '') AS name,
        coalesce(a.state, '') AS state, a.xact_start AS since, coalesce(a.query, '') AS runs
    FROM pg_stat_activity a
    WHERE a.pid = held.pid AND a.pid <> pg_backend_pid()
        AND coalesce(a.backend_type, 'client backend') = 'client backend'
    UNION ALL
    SELECT 0, CAST(p.owner AS text), p.gid, 'prepared', p.prepared, ''
    FROM pg_locks l JOIN pg_prepared_xacts p ON p.transaction = l.transactionid
    WHERE held.pid IS NULL AND l.pid IS NULL AND l.virtualtransaction = held.holder AND l.locktype = 'transactionid'
        AND p.database = current_database()
) AS t LEFT JOIN waited_for w ON w.blocker = t.pid AND (t.pid <> 0 OR w.holder = held.holder)
WHERE coalesce(t.since < clock_timestamp() - :long * interval '1 second', t.state = '')
    AND (w.n > 0 OR held.holder = ANY (CAST(:only AS text[])) OR held.is_in_the_way
        AND t.since IS NOT NULL AND NOT starts_with(t.name, 'celeriac'))
ORDER BY t.since LIMIT :most
""")

# A transaction leaves its id in a row that it changes or locks alone, and holds the lock of that id until it ends.
ON_TASK = text("""
SELECT DISTINCT l.virtualtransaction FROM (
    SELECT t.xmax AS by FROM celeriac.tasks t WHERE t.id = :id
    UNION ALL
    SELECT k.xmax FROM celeriac.tickets k WHERE k.token = CAST(:token AS uuid)
    UNION ALL
    SELECT r.xmax FROM celeriac.ready r
    WHERE r.role = :role AND r.account = :account AND r.priority = :priority AND r.due_at = :due AND r.id = :id
    UNION ALL
    SELECT p.xmax FROM celeriac.account_policies p WHERE p.account = :account
) AS touched JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = touched.by
""")

# INVARIANT: one descent for each account and priority, as in `watched.OLDEST`; look-ups of the oldest entries and of
# the tickets' tasks. An entry that passes skip for seconds stays its account's first, so the later ones are not read.
HOLDERS_OF_ROWS = text(f"""
WITH entries AS MATERIALIZED (
    SELECT level.id, level.by, level.due_at AS since FROM celeriac.roles r CROSS JOIN LATERAL (
        {oldest_in("account, priority, due_at, id, xmax AS by", "levels")}
        SELECT id, by, due_at FROM levels
    ) AS level WHERE NOT r.paused
    UNION ALL
    SELECT held.id, k.xmax, k.claimed_at FROM celeriac.tickets k, unnest(k.ids) AS held (id)
), oldest AS MATERIALIZED (
    SELECT id, by FROM entries WHERE since < statement_timestamp() - :long * interval '1 second'
    ORDER BY since LIMIT :looked_up
), touched AS MATERIALIZED (
    SELECT o.id, o.by FROM oldest o
    UNION
    SELECT o.id, t.xmax FROM oldest o, LATERAL (SELECT xmax FROM celeriac.tasks WHERE id = o.id LIMIT 1) AS t
)
SELECT l.virtualtransaction AS holder, CAST(count(DISTINCT touched.id) AS integer) AS tasks
FROM touched JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = touched.by
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.pid IS DISTINCT FROM pg_backend_pid() AND NOT starts_with(coalesce(a.application_name, ''), 'celeriac')
GROUP BY l.virtualtransaction
""")

#: Maximum number of a role's accounts and priorities whose first entry is read, and of all entries looked up.
LEVELS, LOOKED_UP = 1_000, 500

#: Constants in a statement may be private.
_CONSTANT = re.compile(r"'(?:[^']|'')*'?")


@dataclass(frozen=True, slots=True)
class Blocker:
    """A transaction that holds rows or tables of the engine: of a session, or a prepared one, which has `pid` 0.

    `name`: the application's, or the prepared transaction's. `since`: when it began or was prepared, and `seconds` how
    long ago; None if this login may not see that. `runs`: its last statement, without constants. `holder`: its name in
    `pg_locks`. `holds_tables`: it holds whole tables. `waiting`: sessions that wait for it now; the engine's give up
    and go on. `tasks`: those whose rows it holds, among the rows that were read.
    """

    pid: int
    login: str
    name: str
    state: str
    since: datetime | None
    runs: str
    seconds: float | None
    holder: str
    tables: list[str]
    holds_tables: bool
    waiting: int
    tasks: int = 0

    @property
    def subject(self) -> str:
        return f"pid {self.pid}" if self.pid else f"prepared {self.name}"

    @property
    def sentence(self) -> str:
        known = f" for {self.seconds:.0f} s (since {self.since:%H:%M:%S %Z})" if self.seconds is not None else ""
        name = self.name if self.pid else ""
        who = ", ".join(filter(None, (f"login {self.login}" if self.login else "", name, self.state)))
        tasks = f", among them those of {self.tasks:,} tasks that should go on" if self.tasks else ""
        what = f"rows or tables of {', '.join(self.tables)}{tasks}{known}"
        runs = f"; it runs: {self.runs}" if self.pid else ""
        return f"{self.subject} ({who}) holds {what}{runs}"

    @property
    def cure(self) -> str:
        if self.pid:
            return f"commit it or roll it back, or SELECT pg_terminate_backend({self.pid});"
        return f"COMMIT PREPARED {quoted(self.name)}; or ROLLBACK PREPARED {quoted(self.name)}; as its coordinator says"


def quoted(name: str) -> str:
    """Return a literal of SQL."""
    return "'" + name.replace("'", "''") + "'"


def blockers(connection: Connection, *, longer_than: float = LONG, only: Sequence[str] = ()) -> list[Blocker]:
    """Return the transactions in the engine's way, the oldest first, and always those of the holders `only`."""
    wanted = {
        "long": longer_than, "only": list(only), "most": MOST, "whole": list(WHOLE), "of_callers": list(OF_CALLERS)
    }  # fmt: skip
    rows = connection.execute(BLOCKERS, wanted).mappings()
    return [Blocker(**dict(row) | {"runs": without_constants(row["runs"])}) for row in rows]


def in_the_way(connection: Connection) -> list[Blocker]:
    """Return `blockers`, and transactions that hold rows of ready or claimed tasks although nobody waits for them."""
    met = blockers(connection)
    if any(one.holds_tables for one in met):
        return met
    wanted = {"long": LONG, "levels": LEVELS, "looked_up": LOOKED_UP}
    with lookups(connection):
        tasks = {row.holder: row.tasks for row in connection.execute(HOLDERS_OF_ROWS, wanted)}
    return [replace(one, tasks=tasks.get(one.holder, 0)) for one in blockers(connection, only=list(tasks))]


def blockers_of(connection: Connection, task: Mapping[str, Any]) -> list[Blocker]:
    """Return the transactions that have locked a task's rows, its account's policy, or a whole table."""
    lane = lane_of(task["role"], task.get("queue"))
    whose = {"id": task["id"], "token": task["token"], "role": lane, "account": task["account"]}
    wanted = whose | {"priority": task["priority"], "due": task["scheduled_for"]}
    holders = set(connection.execute(ON_TASK, wanted).scalars())
    met = blockers(connection, only=list(holders))
    return [one for one in met if one.holder in holders or one.holds_tables]


def without_constants(statement: str) -> str:
    """Return a statement in one line, without what it has in quotes."""
    line = _CONSTANT.sub("'…'", " ".join(statement.split()))
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
