"""Accounts in the last hour: how their tasks ended and how long they waited, computed from the newest tasks of each
role.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from celeriac.insights.tasks.clock import LATELY, lately

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

POLICIES = text("""
SELECT account, weight, cap, paused FROM celeriac.account_policies WHERE account = ANY (CAST(:accounts AS text[]))
""")


@dataclass(frozen=True, slots=True)
class AccountHour:
    """An account's newest tasks that ended within an hour, of 1,000 in each role. `wait_p95` (seconds): None if none
    began. For a role that keeps no successes only failures are counted.
    """

    account: str
    completed: int
    failed: int
    wait_p95: float | None


def account_hours(connection: Connection, account: str | None = None) -> list[AccountHour]:
    """Return the accounts with most ended tasks, or only the given one."""
    parameters = {"account": account, "newest": NEWEST, "accounts": ACCOUNTS} | lately(connection)
    return [AccountHour(*row) for row in connection.execute(ENDED, parameters)]


def policies_of(connection: Connection, accounts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the policies set for these accounts, by account; one without a policy is not in it."""
    rows = connection.execute(POLICIES, {"accounts": list(accounts)}).mappings()
    return {row["account"]: dict(row) for row in rows}
