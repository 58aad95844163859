"""Accounts, lately: what their tasks came to and how long they waited, of the newest of each role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

#: Of each role, so many are looked at; accounts that are told.
NEWEST, ACCOUNTS = 1_000, 100

# Each LIMIT has its index's ORDER BY.
ENDED = text("""
SELECT h.account, count(*) FILTER (WHERE status = 'completed') AS completed,
    count(*) FILTER (WHERE status = 'failed') AS failed,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY CAST(greatest(0, extract(epoch FROM h.waited)) AS double precision))
        FILTER (WHERE h.waited IS NOT NULL) AS wait_p95
FROM celeriac.roles r CROSS JOIN LATERAL (
    SELECT account, status, started_at - greatest(created_at, scheduled_for) AS waited FROM celeriac.history
    WHERE role = r.role AND completed_at > statement_timestamp() - interval '1 hour'
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
    """Of the newest 1,000 of each role that ended within an hour. `wait_p95` (seconds): None where none began.

    A role that keeps no successes has no more than its failures there.
    """

    account: str
    completed: int
    failed: int
    wait_p95: float | None


def account_hours(connection: Connection, account: str | None = None) -> list[AccountHour]:
    """Of those whose tasks ended most, or of one."""
    parameters = {"account": account, "newest": NEWEST, "accounts": ACCOUNTS}
    return [AccountHour(*row) for row in connection.execute(ENDED, parameters)]


def policies_of(connection: Connection, accounts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What somebody set for these, by account; of the others nothing."""
    rows = connection.execute(POLICIES, {"accounts": list(accounts)}).mappings()
    return {row["account"]: dict(row) for row in rows}
