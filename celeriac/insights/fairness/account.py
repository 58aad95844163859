"""Accounts: the tasks of one in each role, what it holds, its oldest ready tasks; and the last hour of all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from celeriac.insights.fairness.shares import CAP
from celeriac.insights.tasks.clock import LATELY, lately
from celeriac.insights.tasks.counting import Count, roles_in

#: The most tasks in the list of those it holds, and in that of its oldest.
HOLDINGS, OLDEST = 50, 10

# Each LIMIT has its index's ORDER BY.
_READY = """SELECT id, due_at FROM celeriac.ready WHERE role = r.role AND account = :account
        ORDER BY priority DESC, due_at, id LIMIT :most"""
_PARKED = """SELECT id, due_at FROM celeriac.parked WHERE account = :account AND role = r.role
        ORDER BY priority DESC, due_at, id LIMIT :most"""

# INVARIANT of `names`: one descent per role that has something ready, declared or not.
_KNOWN = f"""
{roles_in("ready", "names")}, known AS MATERIALIZED (
    SELECT role FROM celeriac.roles UNION SELECT role FROM names UNION SELECT role FROM celeriac.tickets
)"""

OF_ROLES = text(f"""{_KNOWN}
SELECT r.role, ready.n AS ready, later.n AS later, parked.n AS parked, least(ready.oldest, parked.oldest) AS oldest_due,
    coalesce(held.claimed, 0) AS claimed, coalesce(held.running, 0) AS running, hour.completed, hour.failed
FROM known r
CROSS JOIN LATERAL (SELECT count(*) AS n, min(due_at) AS oldest FROM ({_READY}) AS entries) AS ready
CROSS JOIN LATERAL (SELECT count(*) AS n, min(due_at) AS oldest FROM ({_PARKED}) AS entries) AS parked
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
    SELECT FROM celeriac.later WHERE role = r.role AND account = :account ORDER BY due_at, id LIMIT :most) AS entries
) AS later
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE status = 'completed') AS completed,
        count(*) FILTER (WHERE status = 'failed') AS failed
    FROM (SELECT account, status FROM celeriac.history
        WHERE role = r.role AND {LATELY}
        ORDER BY completed_at DESC LIMIT :newest) AS ended
    WHERE account = :account
) AS hour
LEFT JOIN (
    SELECT k.role, count(*) FILTER (WHERE k.worker_id IS NULL) AS claimed,
        count(*) FILTER (WHERE k.worker_id IS NOT NULL) AS running
    FROM celeriac.tickets k, unnest(k.accounts) AS whose WHERE whose = :account GROUP BY k.role
) AS held ON held.role = r.role
WHERE ready.n + later.n + parked.n + coalesce(held.claimed, 0) + hour.completed + hour.failed
    + coalesce(held.running, 0) > 0
ORDER BY r.role
""")

HELD = text("""
SELECT held.id, k.role, k.worker_id, k.claimed_at, k.started_at,
    CAST(extract(epoch FROM statement_timestamp() - celeriac.heard_at(k.worker_id, k.worker_pid, k.heartbeat_at))
        AS double precision) AS heartbeat_age
FROM celeriac.tickets k, unnest(k.ids, k.accounts) AS held (id, account)
WHERE held.account = :account ORDER BY k.claimed_at, held.id LIMIT :most
""")

# Selected among the entries that are counted, role by role.
FIRST = text(f"""{_KNOWN}
SELECT entries.id, r.role, entries.due_at, entries.parked FROM known r CROSS JOIN LATERAL (
    SELECT id, due_at, false AS parked FROM ({_READY}) AS ready
    UNION ALL
    SELECT id, due_at, true FROM ({_PARKED}) AS parked
) AS entries
ORDER BY entries.due_at, entries.id LIMIT :told
""")

#: Maximum number of tasks of each role that are read, and of accounts that are listed.
NEWEST, ACCOUNTS = 1_000, 100

# Each LIMIT has its index's ORDER BY.
ENDED = text(f"""
SELECT h.account, count(*) FILTER (WHERE status = 'completed') AS completed,
    count(*) FILTER (WHERE status = 'failed') AS failed,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY CAST(greatest(0, extract(epoch FROM h.waited)) AS double precision))
        FILTER (WHERE h.waited IS NOT NULL) AS wait_p95
FROM celeriac.roles r CROSS JOIN LATERAL (
    SELECT account, status, started_at - greatest(created_at, scheduled_for) AS waited FROM celeriac.history
    WHERE role = r.role AND {LATELY}
    ORDER BY completed_at DESC LIMIT :newest
) AS h
WHERE CAST(:account AS text) IS NULL OR h.account = :account
GROUP BY h.account ORDER BY count(*) DESC, h.account LIMIT :accounts
""")


@dataclass(frozen=True, slots=True)
class AccountRole:
    """An account's tasks in one role. `ready` could start; `later` waits for its time; `parked`: the account is paused,
    or may have nothing. Tasks waiting for a lock are not counted: no index has them by account. `completed`, `failed`:
    among the role's newest 1,000 tasks that ended within an hour. `oldest_due`: among the ready or parked ones.
    """

    role: str
    ready: Count
    later: Count
    parked: Count
    oldest_due: datetime | None
    claimed: int
    running: int
    completed: int
    failed: int


@dataclass(frozen=True, slots=True)
class Holding:
    """A task of the account that is claimed, or runs on `worker_id`."""

    id: int
    role: str
    worker_id: str | None
    claimed_at: datetime
    started_at: datetime | None
    heartbeat_age: float | None


@dataclass(frozen=True, slots=True)
class Oldest:
    """A task of the account that is due."""

    id: int
    role: str
    due_at: datetime
    parked: bool


@dataclass(frozen=True, slots=True)
class AccountHour:
    """An account's newest tasks that ended within an hour, of 1,000 in each role. `wait_p95` (seconds): None if none
    began. For a role that keeps no successes only failures are counted.
    """

    account: str
    completed: int
    failed: int
    wait_p95: float | None


def account_roles(connection: Connection, account: str) -> list[AccountRole]:
    """Return the account's tasks role by role, for the roles in which it has any."""
    rows = connection.execute(OF_ROLES, {"account": account, "most": CAP + 1, "newest": NEWEST} | lately(connection))
    return [
        AccountRole(
            row.role, Count.up_to(CAP, row.ready), Count.up_to(CAP, row.later), Count.up_to(CAP, row.parked),
            row.oldest_due, row.claimed, row.running, row.completed, row.failed,
        ) for row in rows
    ]  # fmt: skip


def account_holdings(connection: Connection, account: str, *, limit: int = HOLDINGS) -> list[Holding]:
    """Return the tasks that the account holds, those claimed first first."""
    return [Holding(*row) for row in connection.execute(HELD, {"account": account, "most": limit})]


def account_oldest(connection: Connection, account: str, *, limit: int = OLDEST) -> list[Oldest]:
    """Return the account's tasks due first, among 500 of each role, so that one of a lower priority may be missing."""
    parameters = {"account": account, "most": CAP + 1, "told": limit}
    return [Oldest(*row) for row in connection.execute(FIRST, parameters)]


def account_hours(connection: Connection, account: str | None = None) -> list[AccountHour]:
    """Return the accounts with most ended tasks, or only the given one."""
    parameters = {"account": account, "newest": NEWEST, "accounts": ACCOUNTS} | lately(connection)
    return [AccountHour(*row) for row in connection.execute(ENDED, parameters)]
