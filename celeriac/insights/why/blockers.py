"""Blockers: whose open transaction, or slow statement, holds what the engine needs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

#: Told of at once.
MOST = 20

#: Seconds a transaction may be open before it is in the way. Those of the engine are shorter.
LONG = 2.0

#: Characters of what it runs.
LONGEST = 120

# A row lock stands in no view: who is waited for is seen while somebody waits. The engine gives up soon and tries
# again, or passes over what is locked; so those count, too, that are open for long and hold rows of tables
# that callers' enqueues never lock, or a whole table. Autovacuum gives way by itself.
BLOCKERS = text("""
WITH held AS MATERIALIZED (
    SELECT l.pid, array_agg(DISTINCT CAST(c.relname AS text)) AS tables,
        bool_or(l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
            OR c.relname IN ('tickets', 'account_policies', 'workers', 'roles', 'batchers', 'role_limits', 'ring',
                'scheduled_jobs', 'beats', 'locks')) AS is_in_the_way,
        bool_or(l.mode IN ('ExclusiveLock', 'AccessExclusiveLock')) AS holds_tables
    FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
    WHERE l.locktype = 'relation' AND l.granted AND l.mode NOT IN ('AccessShareLock', 'ShareUpdateExclusiveLock')
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND c.relnamespace = CAST('celeriac' AS regnamespace) AND c.relkind IN ('r', 'p')
    GROUP BY l.pid
), waited_for AS MATERIALIZED (
    SELECT blocker, CAST(count(*) AS integer) AS n
    FROM pg_stat_activity a, unnest(pg_blocking_pids(a.pid)) AS blocker
    WHERE a.datname = current_database() AND a.wait_event_type = 'Lock' AND EXISTS (SELECT FROM held)
    GROUP BY blocker
)
SELECT a.pid, coalesce(a.usename, '') AS login, coalesce(a.application_name, '') AS name,
    coalesce(a.state, '') AS state, a.xact_start AS since,
    CAST(extract(epoch FROM clock_timestamp() - a.xact_start) AS double precision) AS seconds,
    coalesce(a.query, '') AS runs, held.tables, held.holds_tables,
    coalesce(w.n, 0) AS waiting
FROM held JOIN pg_stat_activity a ON a.pid = held.pid LEFT JOIN waited_for w ON w.blocker = a.pid
WHERE a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
    AND coalesce(a.xact_start < clock_timestamp() - :long * interval '1 second', true)
    AND (w.n > 0 OR a.pid = ANY (CAST(:only AS integer[])) OR held.is_in_the_way
        AND a.xact_start IS NOT NULL AND NOT starts_with(a.application_name, 'celeriac'))
ORDER BY a.xact_start LIMIT :most
""")

# Whoever updates, deletes or locks a row leaves the id of its transaction in it (several that share a lock do not), and
# holds the lock of that id until it ends.
ON_TASK = text("""
SELECT DISTINCT l.pid FROM (
    SELECT t.xmax AS by FROM celeriac.tasks t WHERE t.id = :id
    UNION ALL
    SELECT k.xmax FROM celeriac.tickets k WHERE k.token = CAST(:token AS uuid)
    UNION ALL
    SELECT r.xmax FROM celeriac.ready r
    WHERE r.role = :role AND r.account = :account AND r.priority = :priority AND r.due_at = :due AND r.id = :id
    UNION ALL
    SELECT p.xmax FROM celeriac.account_policies p WHERE p.account = :account
) AS touched JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = touched.by
WHERE l.pid IS NOT NULL
""")

#: Constants of a statement are nobody's business.
_CONSTANT = re.compile(r"'(?:[^']|'')*'?")


@dataclass(frozen=True, slots=True)
class Blocker:
    """A session that holds rows or tables of the engine.

    `since`: when its transaction began, and `seconds` how long ago; None where this login may not know. `runs`: its
    last statement, without constants. `holds_tables`: whole ones. `waiting`: sessions that wait for it just now; the
    engine's give up and go on.
    """

    pid: int
    login: str
    name: str
    state: str
    since: datetime | None
    seconds: float | None
    runs: str
    tables: list[str]
    holds_tables: bool
    waiting: int

    @property
    def sentence(self) -> str:
        known = f" for {self.seconds:.0f} s (since {self.since:%H:%M:%S %Z})" if self.seconds is not None else ""
        who = ", ".join(filter(None, (f"login {self.login}" if self.login else "", self.name, self.state)))
        return f"pid {self.pid} ({who}) holds rows or tables of {', '.join(self.tables)}{known}; it runs: {self.runs}"

    @property
    def cure(self) -> str:
        return f"commit it or roll it back, or SELECT pg_terminate_backend({self.pid});"


def blockers(connection: Connection, *, longer_than: float = LONG, only: Sequence[int] = ()) -> list[Blocker]:
    """Who is in the engine's way, the oldest first; those of `only` in any case."""
    wanted = {"long": longer_than, "only": list(only), "most": MOST}
    rows = connection.execute(BLOCKERS, wanted).mappings()
    return [Blocker(**dict(row) | {"runs": without_constants(row["runs"])}) for row in rows]


def blockers_of(connection: Connection, task: Mapping[str, Any]) -> list[Blocker]:
    """Who has locked the rows of a task, or its account's policy, or a whole table."""
    whose = {"id": task["id"], "token": task["token"], "role": task["role"], "account": task["account"]}
    wanted = whose | {"priority": task["priority"], "due": task["scheduled_for"]}
    pids = set(connection.execute(ON_TASK, wanted).scalars())
    met = blockers(connection, only=list(pids))
    return [one for one in met if one.pid in pids or one.holds_tables]


def without_constants(statement: str) -> str:
    """A statement in a line, without what it has in quotes."""
    line = _CONSTANT.sub("'…'", " ".join(statement.split()))
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
