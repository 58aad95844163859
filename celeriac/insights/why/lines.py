"""Lines: count the tasks that go before one in its account, at its lock key, and among all accounts of its role."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, TextClause, text

from celeriac.store.ready import TURNS

MEMBERS = text("""
SELECT count(*) AS n, max(id) AS newest FROM (
    SELECT id FROM celeriac.tasks WHERE barrier = (SELECT barrier FROM celeriac.barriers WHERE id = :id)
    ORDER BY -id LIMIT :most) AS members
""")

# Counting stops at :most.
_AHEAD = """
SELECT count(*) FROM (
    SELECT FROM celeriac.{line} AND priority >= :priority
        AND (-priority, due_at, id) < (-:priority, :scheduled_for, :id)
    ORDER BY priority DESC, due_at, id LIMIT :most) AS ahead
"""

AHEAD_OF_LOCK = text(_AHEAD.format(line="behind WHERE lock_key = :lock_key"))

AHEAD_IN_ACCOUNT = text(_AHEAD.format(line="ready WHERE role = :role AND account = :account"))

BEHIND = text("""
SELECT count(*) FROM (
    SELECT FROM celeriac.behind WHERE lock_key = :lock_key ORDER BY priority DESC, due_at, id LIMIT :most) AS line
""")

# Tasks of other accounts that get slots of a pass before one whose account would hold :level with it, as
# `celeriac.dispatch.fairness` allocates them: by level, then by rotation. Counting stops at :free.
# INVARIANT: as in `celeriac.dispatch.select`, each step is one descent to the next account with an entry. At most
# :accounts open accounts are read: behind so many, of whom :free hold nothing, nobody gets anything. At most :most shut
# ones are read.
OTHERS_FIRST = text(f"""{TURNS}, walk AS (
    SELECT * FROM (
        SELECT turn.account, coalesce(policy.weight, 1) AS weight, policy.cap, coalesce(policy.shut, false) AS shut,
            coalesce(CAST(CAST(:holding AS jsonb) ->> turn.account AS integer), 0) AS holds
        FROM (SELECT account FROM onward UNION ALL SELECT account FROM around) AS turn
        LEFT JOIN LATERAL (
            SELECT weight, cap, paused OR coalesce(cap = 0, false) AS shut FROM celeriac.account_policies
            WHERE account = turn.account LIMIT 1
        ) AS policy ON true
        LIMIT CAST(:accounts AS bigint) + :most
    ) AS met WHERE NOT shut LIMIT CAST(:accounts AS bigint)
)
SELECT count(*) FROM (
    SELECT FROM walk, LATERAL (
        SELECT row_number() OVER () - 1 AS n FROM (
            SELECT FROM celeriac.ready WHERE role = :role AND account = walk.account
            ORDER BY priority DESC, due_at, id
            LIMIT greatest(0, least(walk.cap - walk.holds, :free,
                CAST(least(:level * walk.weight, 1e6) AS integer) - walk.holds + 2))
        ) AS entry
    ) AS slot
    WHERE walk.account <> :account
        AND ((walk.holds + slot.n) / walk.weight, walk.account <= :cursor, walk.account)
            < (CAST(:level AS double precision), CAST(:account AS text) <= :cursor, CAST(:account AS text))
    LIMIT :free) AS first
""")

#: The bound for counting the tasks ahead.
MOST = 1_000


@dataclass(frozen=True, slots=True)
class Members:
    """The number of members that have not finished, at most 1,000, and one of them."""

    n: int
    newest: int | None


def members(connection: Connection, task: int) -> Members:
    """Return the members that this body waits for."""
    return Members(*connection.execute(MEMBERS, {"id": task, "most": MOST}).one())


def ahead_of_lock(connection: Connection, task: Mapping[str, Any]) -> int:
    return _count(connection, AHEAD_OF_LOCK, task, "lock_key", "priority", "scheduled_for", "id")


def behind(connection: Connection, task: Mapping[str, Any]) -> int:
    """Count the tasks that wait for its lock key."""
    return _count(connection, BEHIND, task, "lock_key")


def ahead_in_account(connection: Connection, task: Mapping[str, Any]) -> int:
    return _count(connection, AHEAD_IN_ACCOUNT, task, "role", "account", "priority", "scheduled_for", "id")


def others_first(
    connection: Connection, task: Mapping[str, Any], *, ahead: int, weight: float, cursor: str,
    holding: Mapping[str, int], free: int,
) -> int:  # fmt: skip
    """Count the slots of a pass with `free` that others get before this task. `ahead`: tasks first in its account."""
    level = (holding.get(task["account"], 0) + ahead) / weight
    bounds = {"free": free, "accounts": free + len(holding), "holding": json.dumps(dict(holding)), "most": MOST}
    wanted = {"role": task["role"], "account": task["account"], "cursor": cursor, "level": level}
    return int(connection.execute(OTHERS_FIRST, wanted | bounds).scalar_one())


def _count(connection: Connection, statement: TextClause, task: Mapping[str, Any], *names: str) -> int:
    return int(connection.execute(statement, {name: task[name] for name in names} | {"most": MOST}).scalar_one())
