"""Counts of tasks: exact up to a bound, and beyond it that bound, as a lower one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, text

from celeriac.insights.fleet import shared_slots
from celeriac.store.role_names import is_built_in
from celeriac.store.states import ALL, CANCELLED, COMPLETED, FAILED, PENDING

#: The bounds of a count: of all roles or of one, and of each of many.
CAP, CAP_OF_EACH = 50_000, 5_000

# Each LIMIT has its index's ORDER BY, so that counting walks the index and nothing else.
_COUNTS = """
SELECT greatest(0, u.unfinished - held.claimed - held.running) AS pending, held.claimed, held.running,
    ended.failed, ended.cancelled, ended.completed, ended.has_more
FROM (
    SELECT CAST(coalesce(sum(cardinality(ids)) FILTER (WHERE worker_id IS NULL), 0) AS bigint) AS claimed,
        CAST(coalesce(sum(cardinality(ids)) FILTER (WHERE worker_id IS NOT NULL), 0) AS bigint) AS running
    FROM celeriac.tickets{of_lanes}
) AS held CROSS JOIN LATERAL (
    SELECT count(*) AS unfinished
    FROM (SELECT FROM celeriac.tasks{of_role} LIMIT :most + held.claimed + held.running) AS t
) AS u CROSS JOIN celeriac.count_ended({role}, :most) AS ended
"""

COUNTS = text(_COUNTS.format(of_lanes="", of_role=" ORDER BY id", role="NULL"))

COUNTS_OF_ROLE = text(
    _COUNTS.format(
        of_lanes=" WHERE role = ANY (celeriac.lanes_of(:role))", of_role=" WHERE role = :role ORDER BY -id",
        role=":role",
    )
)  # fmt: skip

# Pending tasks by what they wait for, which is how lists are filtered.
WAITING = text("""
SELECT (SELECT count(*) FROM (
        SELECT FROM celeriac.ready ORDER BY role, account LIMIT :most) AS r) AS nothing,
    (SELECT count(*) FROM (SELECT FROM celeriac.later ORDER BY role, due_at LIMIT :most) AS l) AS "time",
    (SELECT count(*) FROM (SELECT FROM celeriac.behind ORDER BY role, lock_key LIMIT :most) AS b) AS lock,
    (SELECT count(*) FROM (SELECT FROM celeriac.parked ORDER BY role LIMIT :most) AS p) AS account,
    (SELECT count(*) FROM (SELECT FROM celeriac.barriers ORDER BY role LIMIT :most) AS m) AS members
""")

WAITING_OF_ROLE = text("""
SELECT sum(ready) AS nothing, sum(later) AS "time", sum(behind_lock) AS lock, sum(parked) AS account,
    sum(members) AS members
FROM unnest(celeriac.lanes_of(:role)) AS of_role (lane), LATERAL celeriac.backlog(lane, :most)
""")


def roles_in(table: str, name: str) -> str:
    """Return a recursive CTE of the roles that have a row in this table: one descent of its index for each."""
    return f"""WITH RECURSIVE {name} AS (
    (SELECT role FROM celeriac.{table} ORDER BY role LIMIT 1)
    UNION ALL
    SELECT next.role FROM {name}, LATERAL (
        SELECT role FROM celeriac.{table} WHERE role > {name}.role ORDER BY role LIMIT 1) AS next
)"""


def oldest_in(columns: str, most: str) -> str:
    """Return a recursive CTE of a role `r`'s oldest ready entry of each account and priority: one descent for each."""
    return f"""WITH RECURSIVE levels AS (
        (SELECT {columns}, 1 AS n FROM celeriac.ready
            WHERE role = r.role ORDER BY account, priority DESC, due_at LIMIT 1)
        UNION ALL
        SELECT next.*, levels.n + 1 FROM levels, LATERAL (
            (SELECT {columns} FROM celeriac.ready
                WHERE role = r.role AND account = levels.account AND priority < levels.priority
                ORDER BY account, priority DESC, due_at LIMIT 1)
            UNION ALL
            (SELECT {columns} FROM celeriac.ready
                WHERE role = r.role AND account > levels.account ORDER BY account, priority DESC, due_at LIMIT 1)
            LIMIT 1) AS next
        WHERE levels.n < :{most}
    )"""


DEPTH = text(f"""
{roles_in("tasks", "busy")}, names AS (
    SELECT role FROM celeriac.roles UNION SELECT role FROM busy
)
SELECT names.role, coalesce(r.definition ->> 'queue', names.role) AS queue, coalesce(r.paused, false) AS paused,
    r.paused_until,
    w.size AS "window", w.newcomer AS newcomer_seconds,
    CASE WHEN r.definition ?| '{{queues,lane_of}}' THEN b.ready + b.later + b.behind_lock + b.parked + b.members
        ELSE greatest(0, unfinished.n - b.claimed - b.running) END AS pending, b.ready, b.later,
    b.behind_lock AS behind, b.parked, b.members, b.claimed, b.running, b.stale, oldest.seconds AS oldest_ready_seconds
FROM names LEFT JOIN celeriac.roles r ON r.role = names.role
LEFT JOIN LATERAL celeriac.current_window(names.role) AS w ON true
CROSS JOIN LATERAL celeriac.backlog(names.role, :most) AS b
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
    SELECT FROM celeriac.tasks WHERE role = names.role
    ORDER BY -id LIMIT :most + b.claimed + b.running) AS p) AS unfinished
CROSS JOIN LATERAL (
    SELECT extract(epoch FROM statement_timestamp() - min(scheduled_for)) AS seconds
    FROM (SELECT * FROM celeriac.tasks WHERE role = celeriac.role_of(names.role) ORDER BY -id DESC LIMIT :look)
        AS first_ones
    WHERE celeriac.lane(first_ones.role, first_ones.queue) = names.role
        AND (SELECT true FROM celeriac.ready e WHERE e.role = names.role AND e.account = first_ones.account
        AND e.priority = first_ones.priority AND e.due_at = first_ones.scheduled_for AND e.id = first_ones.id)
) AS oldest
WHERE CAST(:role AS text) IS NULL OR names.role = :role
ORDER BY names.role
""")

DUE = text("""
SELECT CAST(sum(ready + due + behind_lock + parked) AS bigint)
FROM unnest(celeriac.lanes_of(:role)) AS of_role (lane), LATERAL celeriac.backlog(lane)
""")

# Registered roles only.
BACKLOGS = text("""
SELECT r.role, coalesce((SELECT size FROM celeriac.current_window(r.role)), 0) AS "window", b.*
FROM celeriac.roles r CROSS JOIN LATERAL celeriac.backlog(r.role, :most) AS b
""")

NEWCOMERS = text("""
SELECT r.role, coalesce(r.definition ->> 'queue', r.role) AS queue, w.size AS "window", w.newcomer AS seconds,
    (r.definition ->> 'window_by_measure') IS DISTINCT FROM 'true' AS is_said
FROM celeriac.roles r CROSS JOIN LATERAL celeriac.current_window(r.role) AS w
WHERE w.newcomer IS NOT NULL ORDER BY r.role
""")

#: Maximum number of a role's first pending rows that are read to find the oldest ready one.
LOOK = 500


@dataclass(frozen=True, slots=True)
class Count:
    """A number of tasks. `exact` False: at least `n`."""

    n: int
    exact: bool = True

    @classmethod
    def up_to(cls, most: int, n: int) -> Count:
        """Return the count of rows that were counted to `most` and one more."""
        return cls(min(n, most), n <= most)

    def __str__(self) -> str:
        return f"{self.n:,}{'' if self.exact else '+'}"


@dataclass(frozen=True, slots=True)
class RoleDepth:
    """A role's waiting and running tasks. `oldest_ready_seconds`: since the longest-waiting of its first pending rows
    was due, None if none of these is ready. `newcomer_seconds`: how long, with a full window, a new task waits for
    those claimed before it, and for the turns of other roles at the same slots; None if nobody has measured the role,
    or nobody serves it.
    """

    role: str
    queue: str
    paused: bool
    window: int | None
    pending: Count
    ready: Count
    later: Count
    behind: Count
    parked: Count
    members: Count
    claimed: int
    running: int
    stale: int
    oldest_ready_seconds: float | None
    newcomer_seconds: float | None = None
    paused_until: datetime | None = None


def counts(connection: Connection, role: str | None = None, *, cap: int = CAP) -> dict[str, Count]:
    """Count tasks by status, each exactly up to `cap`; claimed and running are always exact, from the tickets.

    More than `cap` completed tasks are a lower bound: `cap`, or less if more than `cap` failed or were cancelled.
    """
    statement, parameters = (COUNTS, {}) if role is None else (COUNTS_OF_ROLE, {"role": role})
    row = connection.execute(statement, parameters | {"most": cap + 1}).one()._asdict()
    counted = {status: Count.up_to(cap, row[status]) for status in (PENDING, FAILED, CANCELLED)}
    counted[COMPLETED] = Count(min(row[COMPLETED], cap), not row["has_more"])
    return {status: counted.get(status) or Count(row[status]) for status in ALL}


def waiting(connection: Connection, role: str | None = None, *, cap: int = CAP) -> dict[str, Count]:
    """Count pending tasks by what they wait for (nothing, time, lock, account, members), each exactly up to `cap`."""
    statement, parameters = (WAITING, {}) if role is None else (WAITING_OF_ROLE, {"role": role})
    row = connection.execute(statement, parameters | {"most": cap + 1}).one()._asdict()
    return {reason: Count.up_to(cap, n) for reason, n in row.items()}


def depth(connection: Connection, role: str | None = None, *, cap: int = CAP_OF_EACH) -> list[RoleDepth]:
    """Return the depth of every role, or of `role`, exact up to `cap`. Idle, unpaused built-in roles are left out."""
    parameters = {"most": cap + 1, "look": LOOK, "role": role}
    rows = [dict(row) for row in connection.execute(DEPTH, parameters).mappings()]
    measured = [row for row in rows if row["newcomer_seconds"] is not None]
    others = shared_slots.turns(connection) if measured else {}
    for row in measured:
        if turn := others.get(row["queue"]):
            row["newcomer_seconds"] += turn.wait(row["window"])
    return [_depth(row, cap) for row in rows if role or _is_of_note(row) or not is_built_in(row["role"])]


def _is_of_note(row: Mapping[str, Any]) -> bool:
    return any(row[name] for name in ("pending", "claimed", "running", "paused"))


def _depth(row: dict[str, Any], cap: int) -> RoleDepth:
    counted = ("pending", "ready", "later", "behind", "parked", "members")
    bounded = {name: Count.up_to(cap, row[name]) for name in counted}
    seconds = row["oldest_ready_seconds"]
    return RoleDepth(
        **(row | bounded | {"oldest_ready_seconds": None if seconds is None else max(0.0, float(seconds))})
    )


@dataclass(frozen=True, slots=True)
class SlowWindow:
    """A role whose new tasks wait for long: `own` seconds behind earlier claims of the role, `others` for the turns of
    roles that share its workers. `is_said`: the window was set by hand.
    """

    role: str
    window: int
    own: float
    others: float
    is_said: bool


def slow_windows(connection: Connection, own: float, others: float) -> list[SlowWindow]:
    """Return roles whose hand-set window delays a new task by over `own` s, or that others delay by over `others` s."""
    turns, alone = shared_slots.turns(connection), shared_slots.Turn(0.0, 0)
    waits = [
        SlowWindow(row.role, row.window, row.seconds, turns.get(row.queue, alone).wait(row.window), row.is_said)
        for row in connection.execute(NEWCOMERS)
    ]
    return [one for one in waits if (one.is_said and one.own > own) or one.others > others]


def backlogs(connection: Connection, most: int) -> list[RowMapping]:
    """Return each registered role's window and its `celeriac.backlog`, counted to `most` in each state table."""
    return [*connection.execute(BACKLOGS, {"most": most}).mappings()]


def due(connection: Connection, role: str) -> int:
    """Count a role's due, unclaimed tasks, whatever else they wait for; at most 300,000 of each state table."""
    return int(connection.execute(DUE, {"role": role}).scalar_one())
