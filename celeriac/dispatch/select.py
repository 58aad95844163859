"""Select: what one pass needs to know, at a cost that follows what it may give, not the backlog."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from celeriac.dispatch.fairness import Claimant

# Each LIMIT on worker_tasks has its index's ORDER BY, and none stands in an EXISTS, which would drop both: else the
# planner may read the whole table in the hope of meeting such a row soon.

# Transaction-level, so that it holds behind PgBouncer and goes with a dead process.
LOCK = text("SELECT pg_try_advisory_xact_lock(hashtextextended('celeriac pass ' || :role, 0))")

SURVEY = text("""
SELECT
    coalesce((SELECT paused FROM roles WHERE role = :role), false) AS paused,
    coalesce((SELECT cursor FROM batchers WHERE role = :role), '') AS cursor,
    (SELECT seconds_per_task FROM batchers WHERE role = :role) AS seconds_per_task,
    (SELECT last_pass FROM batchers WHERE role = :role) AS last_pass,
    (SELECT coalesce(jsonb_object_agg(account, n), '{}') FROM (
        SELECT account, count(*) AS n FROM worker_tasks
        WHERE role = :role AND status IN ('claimed', 'running') GROUP BY account
    ) AS holding) AS holding,
    (SELECT true FROM worker_tasks
        WHERE role = :role AND waits_for = 'time' AND scheduled_for <= statement_timestamp()
        ORDER BY scheduled_for LIMIT 1) IS NOT NULL AS due,
    (SELECT coalesce(sum(concurrency), 0) FROM workers
        WHERE status = 'active' AND queues ? :queue
          AND last_heartbeat_at > statement_timestamp() - interval '2 minutes') AS slots
""")

# INVARIANT of `onward`, `around`: each step is one descent into worker_tasks_ready, to the next account that has a
# ready row. `around` is read only if `onward` ran out of accounts before `walk` found :accounts that may get something,
# each with one look at its policy. `waiting` counts at most :depth rows of an account.
CLAIMANTS = text("""
WITH RECURSIVE onward AS (
    (SELECT account FROM worker_tasks
        WHERE role = :role AND status = 'pending' AND waits_for IS NULL AND account > :cursor
        ORDER BY account LIMIT 1)
    UNION ALL
    SELECT next.account FROM onward, LATERAL (
        SELECT account FROM worker_tasks
        WHERE role = :role AND status = 'pending' AND waits_for IS NULL AND account > onward.account
        ORDER BY account LIMIT 1) AS next
), around AS (
    (SELECT account FROM worker_tasks
        WHERE role = :role AND status = 'pending' AND waits_for IS NULL AND account <= :cursor
        ORDER BY account LIMIT 1)
    UNION ALL
    SELECT next.account FROM around, LATERAL (
        SELECT account FROM worker_tasks
        WHERE role = :role AND status = 'pending' AND waits_for IS NULL
          AND account > around.account AND account <= :cursor
        ORDER BY account LIMIT 1) AS next
), walk AS (
    SELECT turn.account, policy.weight, policy.cap, row_number() OVER () AS place
    FROM (SELECT account FROM onward UNION ALL SELECT account FROM around) AS turn
    LEFT JOIN LATERAL (
        SELECT weight, cap, paused OR cap = 0 AS shut FROM account_policies WHERE account = turn.account LIMIT 1
    ) AS policy ON true
    WHERE policy.shut IS NOT TRUE LIMIT :accounts
)
SELECT walk.account, waiting.n AS waiting, coalesce(walk.weight, 1) AS weight, walk.cap
FROM walk
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM worker_tasks
        WHERE role = :role AND status = 'pending' AND waits_for IS NULL AND account = walk.account
        ORDER BY priority DESC, scheduled_for, id LIMIT :depth) AS counted
) AS waiting
ORDER BY walk.place
""")

WAITING = text("""
SELECT wanted.account, (
    SELECT count(*) FROM (
        SELECT FROM worker_tasks
        WHERE role = :role AND status = 'pending' AND waits_for IS NULL AND account = wanted.account
        ORDER BY priority DESC, scheduled_for, id LIMIT :depth) AS counted) AS waiting
FROM unnest(CAST(:accounts AS text[])) AS wanted (account)
""")

READY = text("""
SELECT true FROM worker_tasks WHERE role = :role AND status = 'pending' AND waits_for IS NULL ORDER BY account LIMIT 1
""")

WORK_AND_ROOM = text("""
SELECT NOT coalesce((SELECT paused FROM roles WHERE role = :role), false)
    AND coalesce(
        (SELECT true FROM worker_tasks
            WHERE role = :role AND status = 'pending' AND waits_for IS NULL ORDER BY account LIMIT 1),
        (SELECT true FROM worker_tasks
            WHERE role = :role AND waits_for = 'time' AND scheduled_for <= statement_timestamp()
            ORDER BY scheduled_for LIMIT 1),
        false
    ) AND (
        SELECT count(*) < :below FROM (
            SELECT FROM worker_tasks WHERE role = :role AND status IN ('claimed', 'running')
            ORDER BY account LIMIT :below
        ) AS active)
""")


@dataclass(frozen=True, slots=True)
class Survey:
    """The state a pass decides on. `holding`: active tasks per account; `slots`: consumers of live workers."""

    paused: bool
    cursor: str
    seconds_per_task: float | None
    last_pass: int | None
    holding: dict[str, int]
    due: bool
    slots: int


def lock_pass(connection: Connection, role: str) -> bool:
    """True if this transaction is the role's only pass. Take it before reading: it orders what is read."""
    return bool(connection.execute(LOCK, {"role": role}).scalar_one())


def survey(connection: Connection, role: str, queue: str) -> Survey:
    return Survey(*connection.execute(SURVEY, {"role": role, "queue": queue}).one())


def claimants(connection: Connection, role: str, seen: Survey, free: int, depth: int) -> list[Claimant]:
    """Accounts with ready tasks in rotation order, each with at most `depth` of them counted; paused ones, and those
    whose cap is 0, left out.

    At least `free` accounts that hold nothing, if there are so many: whoever stands behind them could get nothing
    anyway.
    """
    wanted = {"role": role, "cursor": seen.cursor, "accounts": free + len(seen.holding), "depth": depth}
    return [
        Claimant(row.account, row.waiting, seen.holding.get(row.account, 0), row.weight, row.cap)
        for row in connection.execute(CLAIMANTS, wanted)
    ]


def waiting(connection: Connection, role: str, accounts: list[str], depth: int) -> dict[str, int]:
    """How many ready tasks each of these accounts has, counting at most `depth`."""
    rows = connection.execute(WAITING, {"role": role, "accounts": accounts, "depth": depth})
    return {row.account: row.waiting for row in rows}


def has_ready(connection: Connection, role: str) -> bool:
    """Whether any account has a ready task, paused or not."""
    return connection.execute(READY, {"role": role}).scalar_one_or_none() is not None


def work_and_room(connection: Connection, role: str, below: int) -> bool:
    """Whether there is work and fewer than `below` tasks are active; cheap enough to ask after every settle."""
    return bool(connection.execute(WORK_AND_ROOM, {"role": role, "below": below}).scalar_one())
