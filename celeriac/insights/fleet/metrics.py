"""Metrics per role: length of the queue, share of failures, success of retries, waiting time."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from celeriac.store.role_names import is_built_in

MEASURE = text("""
SELECT r.role,
    backlog.ready + backlog.later + backlog.behind_lock + backlog.parked + backlog.members + backlog.claimed
        AS queue_depth,
    1 - hour.failed_rate AS success_rate, hour.failed_rate, hour.retry_rate, hour.retry_success_rate,
    hour.wait_seconds AS average_wait, hour.run_seconds AS average_run, backlog.longest_running
FROM celeriac.roles r
CROSS JOIN LATERAL celeriac.backlog(r.role) AS backlog
CROSS JOIN LATERAL celeriac.last_hour(r.role) AS hour
WHERE CAST(:role AS text) IS NULL OR r.role = :role
ORDER BY r.role
""")

PRIORITIES = text("""
SELECT role, celeriac.priorities(role) AS priorities FROM celeriac.roles
WHERE CAST(:role AS text) IS NULL OR role = :role
ORDER BY role
""")


def metrics(connection: Connection, role: str | None = None) -> list[dict[str, Any]]:
    """Return each role's queue depth, rates (0 to 1, None without data), seconds, and queued tasks by priority.

    A built-in role without any data is left out, unless it is requested.
    """
    rows = [dict(row) for row in connection.execute(MEASURE, {"role": role}).mappings()]
    measured = [row for row in rows if role is not None or not is_built_in(row["role"]) or _is_of_note(row)]
    by_role = priorities_of(connection, role)
    return [row | {"priorities": by_role.get(row["role"], {})} for row in measured]


def priorities(connection: Connection, role: str) -> dict[int, int]:
    """Count a role's queued tasks by tens of priority (0 is 0 to 9), among the first 20,000 of each state table."""
    return priorities_of(connection, role).get(role, {})


def priorities_of(connection: Connection, role: str | None = None) -> dict[str, dict[int, int]]:
    """Count the queued tasks by tens of priority, for each registered role, or only the given one."""
    return {row.role: _sorted(row.priorities) for row in connection.execute(PRIORITIES, {"role": role})}


def _is_of_note(row: dict[str, Any]) -> bool:
    return row["queue_depth"] > 0 or any(row[name] is not None for name in ("failed_rate", "longest_running"))


def _sorted(histogram: dict[str, int]) -> dict[int, int]:
    return dict(sorted((int(tens), n) for tens, n in histogram.items()))
