"""Find accounts whose attempts fail while the role works for others: usually a customer's own endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from celeriac.insights.failures.burning import FEW, KINDS, MOST, OVER
from celeriac.insights.tasks.clock import LATELY, lately
from celeriac.store.messages import pattern_of, quoted
from celeriac.store.shell import argument

#: Maximum number of a role's failed attempts looked up, of its successes read, and of roles: those with most failures.
LOOKED_UP, SUCCESSES, ROLES = 1_000, 10_000, 20

#: Most accounts that are returned.
ACCOUNTS = 20

# INVARIANT: an account is returned if it had successes within the hour and none since its attempts fail; one that
# always fails is nothing new. Since its first failed attempt, more of the others' attempts have succeeded than failed:
# an outage of the whole role is not an account's, even if some tasks under way still succeed.
FAILING = text(f"""
WITH walked AS MATERIALIZED (
    SELECT role, task, at, kind, from_status, left(split_part(why, chr(10), 1), 500) AS message
    FROM celeriac.task_events WHERE at > statement_timestamp() - interval '1 hour' ORDER BY at DESC LIMIT :most
), failed AS MATERIALIZED (
    SELECT * FROM (
        SELECT role, task, at, message, row_number() OVER (PARTITION BY role ORDER BY at DESC) AS n FROM walked
        WHERE from_status = 'running' AND message IS NOT NULL AND kind = ANY (CAST(:kinds AS text[]))) AS f
    WHERE n <= :looked_up
), whose AS MATERIALIZED (
    SELECT f.role, f.at, f.task, f.message, t.account FROM failed f, LATERAL (
        (SELECT account FROM celeriac.tasks WHERE id = f.task LIMIT 1)
        UNION ALL
        (SELECT account FROM celeriac.history
            WHERE id = f.task AND {LATELY} LIMIT 1)
        LIMIT 1) AS t
), suspects AS MATERIALIZED (
    SELECT role, account, CAST(count(*) AS integer) AS attempts, CAST(count(DISTINCT task) AS integer) AS tasks,
        max(at) AS last_at, mode() WITHIN GROUP (ORDER BY message) AS message
    FROM whose WHERE account <> '' GROUP BY role, account HAVING count(*) >= :few
), succeeded AS MATERIALIZED (
    SELECT s.role, h.account, h.completed_at FROM (
        SELECT role FROM suspects GROUP BY role ORDER BY sum(attempts) DESC, role LIMIT :roles) AS s
    CROSS JOIN LATERAL (
        SELECT account, completed_at FROM celeriac.history
        WHERE role = s.role AND {LATELY} AND status = 'completed'
        ORDER BY completed_at DESC LIMIT :successes) AS h
), down AS MATERIALIZED (
    SELECT s.role, s.account, s.message, s.tasks, ok.last_at AS worked_until, since.attempts, since.first_at
    FROM suspects s
    JOIN (SELECT role, account, max(completed_at) AS last_at FROM succeeded GROUP BY role, account) AS ok
        USING (role, account)
    CROSS JOIN LATERAL (
        SELECT CAST(count(*) AS integer) AS attempts, min(at) AS first_at FROM whose w
        WHERE (w.role, w.account) = (s.role, s.account) AND w.at > ok.last_at) AS since
    LEFT JOIN celeriac.roles r ON r.role = s.role
    LEFT JOIN celeriac.account_policies p ON p.account = s.account
    WHERE s.last_at > statement_timestamp() - :over * interval '1 second'
        AND r.paused IS NOT TRUE AND p.paused IS NOT TRUE AND since.attempts >= :few
), went_on AS MATERIALIZED (
    SELECT role, account, completed_at FROM succeeded
    JOIN (SELECT role, min(first_at) AS first_at FROM down GROUP BY role) AS d USING (role)
    WHERE completed_at >= first_at
)
SELECT role, account, message AS error, tasks, worked_until, attempts FROM down d
WHERE (SELECT count(*) FROM went_on o WHERE o.role = d.role AND o.account <> d.account AND o.completed_at >= d.first_at)
    > (SELECT count(*) FROM whose o WHERE o.role = d.role AND o.account <> d.account AND o.at >= d.first_at)
ORDER BY tasks DESC, role, account LIMIT :accounts
""")


@dataclass(frozen=True, slots=True)
class FailingAccount:
    """An account whose attempts in a role have all failed since it last worked: `attempts`, of `tasks` tasks."""

    role: str
    account: str
    error: str
    tasks: int
    worked_until: datetime
    attempts: int

    @property
    def sentence(self) -> str:
        since = f"{self.worked_until:%H:%M:%S %Z}".rstrip()
        return (
            f"all {self.attempts:,} attempts failed since it last worked at {since}: {quoted(pattern_of(self.error))}; "
            f"{self.tasks:,} tasks are hit, and the role goes on for others"
        )

    @property
    def cure(self) -> str:
        account = argument(self.account)
        return (
            f"`celeriac accounts pause {account}` keeps its attempts from being used up until its endpoint is mended, "
            f"then `celeriac accounts resume {account}`"
        )


def failing_accounts(connection: Connection) -> list[FailingAccount]:
    """Return the accounts that fail in a role, neither of which is paused; the one with most tasks hit comes first."""
    parameters = {
        "most": MOST, "kinds": list(KINDS), "few": FEW, "over": OVER, "looked_up": LOOKED_UP, "successes": SUCCESSES,
        "accounts": ACCOUNTS, "roles": ROLES,
    } | lately(connection)  # fmt: skip
    return [FailingAccount(**row) for row in connection.execute(FAILING, parameters).mappings()]
