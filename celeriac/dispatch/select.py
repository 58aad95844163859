"""Select: read what one pass needs to know, at a cost that follows the slots it may give, not the backlog."""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Row, TextClause, text

from celeriac.dispatch.fairness import Claimant, in_turn
from celeriac.dispatch.resuming import Point, Points, behind
from celeriac.store.plans import IN_ORDER
from celeriac.store.prepared import for_cursor
from celeriac.store.ready import TURNS

# Each LIMIT has its index's ORDER BY, and none is inside an EXISTS, which would drop both. Otherwise the planner may
# scan a whole table, expecting to meet such a row soon.

# A transaction-level lock works behind PgBouncer and is released when its process dies.
LOCK = text("SELECT pg_try_advisory_xact_lock(hashtextextended('celeriac pass ' || :role, 0))")

# INVARIANT of `held_since`: no ticket that holds something was claimed before, so nobody walks over the dead entries of
# those that are gone. A pass commits its claims before the next one begins. A few tasks are claimed by one statement of
# its own, and a commit may take as long as it likes: a time becomes `held_since` (`held_next` until then) once all have
# ended that had a transaction id by then (`held_xid`). A claim has its id within 20 s of its `claimed_at`. `stuck`: a
# transaction has been open for too long to wait for. The order is for its index.
SURVEY = text("""
WITH batcher AS (
    SELECT *, coalesce(pg_snapshot_xmin(pg_current_snapshot()) >= held_xid, false) AS is_over,
        coalesce(held_xid > pg_snapshot_xmax(pg_current_snapshot()), true) AS is_none
    FROM celeriac.batcher(:role)
),
held AS (
    SELECT ids, accounts, claimed_at, worker_id FROM celeriac.tickets
    WHERE role = :role AND claimed_at >= coalesce((SELECT held_since FROM batcher), '-infinity')
    ORDER BY role, claimed_at
)
SELECT
    EXISTS (SELECT FROM celeriac.roles WHERE role IN (:role, celeriac.role_of(:role)) AND paused) AS paused,
    coalesce((SELECT cursor FROM batcher), '') AS cursor,
    (SELECT seconds_per_task FROM batcher) AS seconds_per_task,
    (SELECT last_pass FROM batcher) AS last_pass,
    (SELECT points FROM batcher WHERE rescan_at > statement_timestamp()) AS points,
    (SELECT coalesce(jsonb_object_agg(account, n), '{}') FROM (
        SELECT account, count(*) AS n FROM held, unnest(held.accounts) AS account GROUP BY account
    ) AS holding) AS holding,
    (SELECT true FROM celeriac.later
        WHERE role = :role AND due_at <= statement_timestamp() ORDER BY due_at LIMIT 1) IS NOT NULL AS due,
    (SELECT coalesce(sum(concurrency), 0) FROM celeriac.workers
        WHERE status = 'active' AND queues ? :queue
          AND celeriac.is_heard(last_heartbeat_at)) AS slots,
    CAST((SELECT CASE WHEN is_over THEN least((SELECT min(claimed_at) FROM held), greatest(held_next, held_since))
        ELSE held_since END FROM batcher) AS text) AS held_since,
    CAST(coalesce((SELECT held_next FROM batcher WHERE NOT is_over AND NOT is_none),
        statement_timestamp() - interval '20 seconds') AS text) AS held_next,
    CAST(coalesce((SELECT held_xid FROM batcher WHERE NOT is_over AND NOT is_none),
        pg_snapshot_xmax(pg_current_snapshot())) AS text) AS held_xid,
    coalesce((SELECT held_next < statement_timestamp() - interval '80 seconds' FROM batcher
        WHERE NOT is_over AND NOT is_none), false) AS stuck,
    EXISTS (SELECT FROM celeriac.unparking) AS resumed,
    (SELECT floor(celeriac.tokens(l)) - (SELECT coalesce(sum(cardinality(ids)), 0) FROM held WHERE worker_id IS NULL)
        FROM celeriac.role_limits l WHERE role = celeriac.role_of(:role) AND rate_limit IS NOT NULL) AS tokens
""")

# A transaction that has written to tickets keeps its locks on the table and on its own transaction id until it ends.
CLAIMING = text("""
SELECT EXISTS (
    SELECT FROM pg_locks k JOIN pg_locks x USING (virtualtransaction)
    WHERE k.locktype = 'relation' AND k.relation = CAST('celeriac.tickets' AS regclass) AND k.mode = 'RowExclusiveLock'
        AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock' AND x.granted
        AND age(x.transactionid) >= age(CAST(CAST(:held_xid AS xid8) AS xid)))
""")

# INVARIANT of `onward`, `around`: each step is one descent into `ready_in_order`, to the next account with an entry.
# `around` is read only if `onward` ran out of accounts before `walk` found :accounts of them, each with one look-up of
# its policy. `waiting` counts at most :depth entries of an account, none of one that is shut.
_CLAIMANTS = """{turns}, walk AS (
    SELECT turn.account, policy.weight, policy.cap, policy.shut, row_number() OVER () AS place
    FROM (SELECT account FROM onward UNION ALL SELECT account FROM around) AS turn
    LEFT JOIN LATERAL (
        SELECT weight, cap, paused OR coalesce(cap = 0, false) AS shut FROM celeriac.account_policies
        WHERE account = turn.account LIMIT 1
    ) AS policy ON true
    LIMIT :accounts
)
SELECT walk.account, waiting.n AS waiting, coalesce(walk.weight, 1) AS weight, walk.cap,
    coalesce(walk.shut, false) AS shut
FROM walk
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM celeriac.ready WHERE role = :role AND account = walk.account AND walk.shut IS NOT TRUE{behind}
        ORDER BY priority DESC, due_at, id LIMIT :depth) AS counted
) AS waiting
ORDER BY walk.place
"""

_WAITING = """
SELECT wanted.account, (
    SELECT count(*) FROM (
        SELECT FROM celeriac.ready WHERE role = :role AND account = wanted.account{behind}
        ORDER BY priority DESC, due_at, id LIMIT :depth) AS counted) AS waiting
FROM unnest(CAST(:accounts AS text[])) AS wanted (account)
"""

CLAIMANTS = text(_CLAIMANTS.format(turns=TURNS, behind=""))

WAITING = text(_WAITING.format(behind=""))

# CTEs that read the accounts that have resume points, in the same order.
KNOWN = """
WITH known AS (SELECT account FROM jsonb_object_keys(CAST(:points AS jsonb)) AS key (account)),
onward AS (SELECT account FROM known WHERE account > :cursor ORDER BY account),
around AS (SELECT account FROM known WHERE account <= :cursor ORDER BY account)"""

CLAIMANTS_BEHIND = text(_CLAIMANTS.format(turns=KNOWN, behind=behind("walk.account")))

WAITING_BEHIND = text(_WAITING.format(behind=behind("wanted.account")))

# Finds whether one of these accounts has an entry of a lower priority than its point's.
LOWER = text("""
SELECT true FROM unnest(CAST(:accounts AS text[])) AS wanted (account)
WHERE (SELECT true FROM celeriac.ready WHERE role = :role AND account = wanted.account
    AND priority < CAST(CAST(:points AS jsonb) -> wanted.account ->> 0 AS integer)
    ORDER BY priority DESC, due_at, id LIMIT 1)
LIMIT 1
""")

# SQL for a point before each account's first entry.
FRONTS = text("""
SELECT wanted.account, jsonb_build_array(first.priority, first.due_at, first.id - 1) AS point
FROM unnest(CAST(:accounts AS text[])) AS wanted (account)
CROSS JOIN LATERAL (
    SELECT priority, due_at, id FROM celeriac.ready WHERE role = :role AND account = wanted.account
    ORDER BY priority DESC, due_at, id LIMIT 1) AS first
""")

READY = text("SELECT true FROM celeriac.ready WHERE role = :role ORDER BY account LIMIT 1")

PARKED = text("SELECT true FROM celeriac.parked WHERE role = :role LIMIT 1")

# These are statistics, to which every process reports with a delay of its own.
DEAD = text("""
SELECT sum(pg_stat_get_dead_tuples(to_regclass('celeriac.ready_' || n))) FROM generate_series(0, 2) AS n
""")

# A step is a tenth of the bucket, at least one token: the next pass should find that many beside what waits to begin.
REFILLS = text("""
SELECT wanted.role, (step.tokens + waits.n - celeriac.tokens(l)) / celeriac.per_second(l.rate_limit) AS seconds,
    step.tokens / celeriac.per_second(l.rate_limit) AS step
FROM unnest(CAST(:roles AS text[])) AS wanted (role)
JOIN celeriac.role_limits l ON l.role = celeriac.role_of(wanted.role) AND l.rate_limit IS NOT NULL
CROSS JOIN LATERAL (SELECT greatest(1, celeriac.burst(l.rate_limit) / 10) AS tokens) AS step
CROSS JOIN LATERAL (
    SELECT coalesce(sum(cardinality(t.ids)), 0) AS n FROM celeriac.tickets t
    WHERE t.role = wanted.role AND t.worker_id IS NULL AND t.claimed_at >= coalesce(
        (SELECT held_since FROM celeriac.batcher(wanted.role)), '-infinity')) AS waits
WHERE (SELECT true FROM celeriac.ready r WHERE r.role = wanted.role ORDER BY r.account LIMIT 1)
""")

_LOCK_AND_PLAN = f"{IN_ORDER}; {for_cursor(LOCK)}"


@dataclass(frozen=True, slots=True)
class HeldSince:
    """The times, as Postgres writes them, before which no ticket of a role is left: the one that applies, None for its
    first pass, and the one that applies next, once all transactions before the id `xid` are over.
    """

    since: str | None
    next: str
    xid: str


@dataclass(frozen=True, slots=True)
class Survey:
    """The state that a pass decides on. `holding`: active tasks per account; `slots`: consumers of live workers;
    `resumed`: some accounts were resumed whose tasks may still be parked; `tokens`: how many tasks may begin, by the
    role's rate; `points`: the resume points of the last pass, while they last.
    """

    paused: bool
    cursor: str
    seconds_per_task: float | None
    last_pass: int | None
    points: Points | None
    holding: dict[str, int]
    due: bool
    slots: int
    held: HeldSince
    resumed: bool
    tokens: float | None

    def by_rate(self, n: int) -> int:
        """Return how many of `n` tasks may begin by the role's rate."""
        return n if self.tokens is None else min(n, int(self.tokens))


@dataclass(frozen=True, slots=True)
class Refill:
    """When a role with ready tasks has tokens for the next step: in how many seconds, and how many seconds a step
    takes.
    """

    role: str
    seconds: float
    step: float


@dataclass(frozen=True, slots=True)
class Accounts:
    """Accounts that have entries. `open`: in rotation order; `shut`: those that are paused or have a cap of 0.

    `is_all` False: the walk may not have seen every account with ready entries.
    """

    open: list[Claimant]
    shut: list[str]
    is_all: bool


def lock_pass(connection: Connection, role: str) -> bool:
    """Take the role's lock; return True if this transaction is now the role's only pass.

    Call it before any read, so that the reads see all that the last pass wrote. It also makes the planner use look-ups
    in this transaction: a backlog that came just now has no statistics.
    """
    return bool(connection.exec_driver_sql(_LOCK_AND_PLAN, {"role": role}).scalar_one())


def survey(connection: Connection, role: str, queue: str) -> Survey:
    """Read the state that a pass decides on. Once no open transaction has claimed anything, `held_next` becomes
    `held_since` for the next pass, which then sees every claim before it.
    """
    seen = dict(connection.execute(SURVEY, {"role": role, "queue": queue}).mappings().one())
    since, following, xid = (seen.pop(name) for name in ("held_since", "held_next", "held_xid"))
    if seen.pop("stuck") and not _is_claiming(connection, role, xid):
        xid = "0"
    return Survey(**seen, held=HeldSince(since, following, xid))


#: Seconds for which a process remembers that an open transaction has written to tickets. Checking that reads every held
#: lock.
CLAIMS_ON = 10.0

#: For each pool and role, when this process last saw such a transaction.
_claiming: weakref.WeakKeyDictionary[Engine, dict[str, float]] = weakref.WeakKeyDictionary()


def _is_claiming(connection: Connection, role: str, held_xid: str) -> bool:
    by_role, now = _claiming.setdefault(connection.engine, {}), time.monotonic()
    if now - by_role.get(role, -CLAIMS_ON) < CLAIMS_ON:
        return True
    is_claiming = bool(connection.execute(CLAIMING, {"held_xid": held_xid}).scalar_one())
    by_role[role] = now if is_claiming else -CLAIMS_ON
    return is_claiming


def accounts(
    connection: Connection, role: str, seen: Survey, free: int, depth: int, points: Points | None = None
) -> Accounts:
    """Return accounts with ready tasks in rotation order, counting at most `depth` tasks of each.

    With `points`, return only the accounts that have one, and count the tasks behind it. `free` accounts that hold
    nothing are enough: accounts after those could get nothing anyway.
    """
    most = free + len(seen.holding)
    wanted = {"role": role, "cursor": seen.cursor, "accounts": most, "depth": depth}
    rows = _from(connection, CLAIMANTS, CLAIMANTS_BEHIND, wanted, points)
    claimants = [
        Claimant(row.account, row.waiting, seen.holding.get(row.account, 0), row.weight, row.cap)
        for row in rows
        if not row.shut
    ]
    is_all = len(rows) < most
    if is_all and points is None:
        claimants = in_turn(claimants, seen.cursor, free)
    return Accounts(claimants, [row.account for row in rows if row.shut], is_all)


def waiting(
    connection: Connection, role: str, accounts: list[str], depth: int, points: Points | None = None
) -> dict[str, int]:
    """Return how many ready tasks each of these accounts has, in all or behind its resume point, counting at most
    `depth`.
    """
    rows = _from(connection, WAITING, WAITING_BEHIND, {"role": role, "accounts": accounts, "depth": depth}, points)
    return {row.account: row.waiting for row in rows}


def _from(
    connection: Connection, front: TextClause, behind: TextClause, wanted: dict[str, Any], points: Points | None
) -> Sequence[Row[Any]]:
    if points is None:
        return connection.execute(front, wanted).all()
    return connection.execute(behind, wanted | {"points": json.dumps(dict(points))}).all()


def has_lower(connection: Connection, role: str, accounts: Sequence[str], points: Points) -> bool:
    """Return whether one of these accounts has an entry of a lower priority than its point's."""
    wanted = {"role": role, "accounts": list(accounts), "points": json.dumps(dict(points))}
    return bool(accounts) and connection.execute(LOWER, wanted).scalar_one_or_none() is not None


def before_fronts(connection: Connection, role: str, accounts: Sequence[str]) -> dict[str, Point]:
    """Return points before the first entries of these accounts."""
    rows = connection.execute(FRONTS, {"role": role, "accounts": list(accounts)}).all() if accounts else []
    return {row.account: row.point for row in rows}


def dead_entries(connection: Connection) -> int:
    """Return how many entries of `ready` are deleted and not vacuumed yet."""
    return int(connection.execute(DEAD).scalar_one())


def has_ready(connection: Connection, role: str) -> bool:
    """Return whether any account has a ready task."""
    return connection.execute(READY, {"role": role}).scalar_one_or_none() is not None


def has_parked(connection: Connection, role: str) -> bool:
    """Return whether tasks of the role wait for their account to be resumed."""
    return connection.execute(PARKED, {"role": role}).scalar_one_or_none() is not None


def refills(connection: Connection, roles: list[str]) -> list[Refill]:
    """Return the refills of those roles that have a rate and something ready."""
    return [Refill(*row) for row in connection.execute(REFILLS, {"roles": roles})]
