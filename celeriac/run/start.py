"""Start: the one gate between a ticket and a run. Only the right token of the right role passes, and only once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, text

from celeriac.dispatch.window import SUSPECT
from celeriac.roles.role import WIDEST, Role
from celeriac.settle.outcome import Started
from celeriac.store.prepared import Prepared
from celeriac.store.role_names import parts_of_lane

#: The columns read of a task, in the order of `Started`; the ticket's role and token come after them.
COLUMNS = """
    t.id, t.task_id, t.account, t.args, t.kwargs, t.headers, t.retry_count, t.max_retries, t.tries,
    t.max_rounds, t.losses, t.priority, t.timeout, t.parent_id, t.lock_key,
    t.enqueued_by, t.expires_at <= statement_timestamp() AS expired"""

# `:again`: the answer to an earlier start was lost; tasks that it started are this process's already.
START = text(f"""
WITH mine AS (
    UPDATE celeriac.tickets
    SET worker_id = :worker_id, worker_pid = :pid, started_at = clock_timestamp(), heartbeat_at = clock_timestamp()
    WHERE token = CAST(:token AS uuid) AND role = :role
        AND (worker_id IS NULL OR :again AND worker_id = :worker_id AND worker_pid = :pid)
    RETURNING ids
)
SELECT {COLUMNS}
FROM celeriac.tasks t WHERE t.id = ANY (ARRAY(SELECT unnest(ids) FROM mine))
""")

TICKET = text("SELECT worker_id, worker_pid, ids FROM celeriac.tickets WHERE token = CAST(:token AS uuid) FOR UPDATE")

# Selects tickets whose messages may never come, as Redis is away, for this process to start. A worker that gets the
# message later is refused.
UNHEARD = text("""
SELECT ids, CAST(token AS text) AS token FROM celeriac.tickets
WHERE role = :role AND worker_id IS NULL AND claimed_at < statement_timestamp() - interval '1 second'
    AND claimed_at >= coalesce((SELECT held_since FROM celeriac.batcher(:role)), '-infinity')
ORDER BY role, claimed_at LIMIT 20
""")

# Reads the tasks that a pass of this process has claimed for it, in the pass's transaction.
OWN = text(f"""
SELECT {COLUMNS}
FROM celeriac.tasks t WHERE t.id = ANY (CAST(:ids AS bigint[]))
""")

# INVARIANT of `idle`: yes only if `ripe` has all of the role's ready tasks, a pass would promote or unpark no other,
# few are active, and neither role nor accounts are paused or capped. A pass would claim just these: they start at once.
START_FEW = text(f"""
WITH ripe AS MATERIALIZED (
    SELECT role, account, priority, due_at, id FROM celeriac.ready WHERE role = :role ORDER BY account LIMIT :most + 1
), idle AS MATERIALIZED (
    SELECT count(*) <= greatest(1, least(
            :most, coalesce((SELECT :worth / nullif(seconds_per_task, 0) FROM celeriac.batcher(:role)), 1)))
        AND coalesce((SELECT sum(cardinality(ids)) FROM celeriac.tickets
            WHERE role = :role AND claimed_at >= coalesce(
                (SELECT held_since FROM celeriac.batcher(:role)), '-infinity')), 0) < :few
        AND NOT EXISTS (SELECT FROM celeriac.roles WHERE role IN (:role, celeriac.role_of(:role)) AND paused)
        AND (SELECT true FROM celeriac.later
            WHERE role = :role AND due_at <= statement_timestamp() ORDER BY due_at LIMIT 1) IS NULL
        AND NOT EXISTS (SELECT FROM celeriac.unparking u WHERE NOT EXISTS (
            SELECT FROM celeriac.account_policies p WHERE p.account = u.account AND (p.paused OR p.cap = 0)))
        AND NOT EXISTS (SELECT FROM ripe JOIN celeriac.account_policies p USING (account)
            WHERE p.paused OR p.cap IS NOT NULL)
        AND (count(*) < 2 OR NOT EXISTS (SELECT FROM celeriac.tasks t
            WHERE t.id = ANY (ARRAY(SELECT id FROM ripe)) AND t.losses >= :suspect)) AS yes
    FROM ripe
), taken AS MATERIALIZED (
    SELECT r.tableoid, r.ctid FROM ripe p JOIN celeriac.ready r ON r.role = p.role AND r.account = p.account
        AND r.priority = p.priority AND r.due_at = p.due_at AND r.id = p.id
    WHERE r.role = :role AND (SELECT yes FROM idle) FOR UPDATE OF r SKIP LOCKED
), gone AS (
    DELETE FROM celeriac.ready r USING taken WHERE r.ctid = taken.ctid AND r.tableoid = taken.tableoid
    RETURNING r.id, r.account, r.priority, r.due_at
), held AS (
    INSERT INTO celeriac.tickets (token, role, ids, accounts, worker_id, worker_pid, started_at, heartbeat_at)
    SELECT CAST(:token AS uuid), :role, array_agg(id ORDER BY priority DESC, due_at, id),
        array_agg(account ORDER BY priority DESC, due_at, id), :worker_id, :pid, clock_timestamp(), clock_timestamp()
    FROM gone HAVING count(*) > 0
    RETURNING 1
)
SELECT {COLUMNS}, idle.yes
FROM idle LEFT JOIN (held JOIN celeriac.tasks t ON t.id = ANY (ARRAY(SELECT id FROM gone))) ON true
ORDER BY t.priority DESC, t.scheduled_for, t.id
""")

_ME = {"role": "text", "token": "text", "worker_id": "text", "pid": "integer"}
_START = Prepared(START, _ME | {"again": "boolean"})
_START_FEW = Prepared(
    START_FEW, _ME | {"most": "integer", "worth": "double precision", "few": "integer", "suspect": "integer"}
)

#: A role with fewer than `FEW` active tasks is idle, and up to `FEW` of its tasks may start without a pass if they take
#: less time (`WORTH` seconds, measured) in all than the pass would.
FEW, WORTH = 16, 0.01


def start(
    connection: Connection, lane: str, ids: Sequence[int], token: str, *, worker_id: str, pid: int, again: bool = False
) -> list[Started]:
    """Start this ticket and return its tasks in the order of `ids`. Returns none for a ticket that does not exist or
    was started before.

    `again`: it was sent before, without an answer.
    """
    wanted = {"role": lane, "token": token, "worker_id": worker_id, "pid": pid, "again": again}
    return _in_order(_START.rows(connection, wanted), ids, lane, token)


def ticket(connection: Connection, token: str) -> Row[Any] | None:
    """Lock the ticket until the caller's transaction ends; return who holds it, if anybody, and its tasks' ids.

    The statement runs twice if need be: one that waited for an UPDATE of `worker_tasks` finds its row replaced, and
    another sees the new one.
    """
    looks = (connection.execute(TICKET, {"token": token}).one_or_none() for _ in range(2))
    return next(filter(None, looks), None)


def unheard(connection: Connection, lane: str) -> list[tuple[list[int], str]]:
    """Return the oldest tickets of the role that nobody has started within a second, each as its tasks and its
    token.
    """
    return [(row.ids, row.token) for row in connection.execute(UNHEARD, {"role": lane})]


def own(connection: Connection, lane: str, ids: Sequence[int], token: str) -> list[Started]:
    """Return the tasks that a pass has claimed and started for this process, in the order of `ids`."""
    return _in_order(connection.execute(OWN, {"ids": list(ids)}), ids, lane, token)


def start_few(
    connection: Connection, lane: str, most: int, token: str, *, worker_id: str, pid: int
) -> list[Started] | None:
    """Claim and start, under this token, all ready tasks of an idle role, as a pass would do. Tasks that others are
    just starting are left to them. None: there is a choice to make, which takes a pass.
    """
    me = {"role": lane, "token": token, "worker_id": worker_id, "pid": pid}
    bounds = {"most": most, "worth": WORTH, "few": FEW, "suspect": SUSPECT}
    rows = _START_FEW.on(connection, me | bounds).all()
    if not rows[0].yes:
        return None
    name, _ = parts_of_lane(lane)
    return [Started._make((*row[:-1], name, token)) for row in rows if row.id is not None]


def most_without_pass(role: Role) -> int:
    """Return how many tasks of a role may start without a pass,
    so that several processes doing so do not overrun its window.

    A window by measure is wider than there are idle processes, so they cannot overrun it.
    """
    window = role.window or WIDEST
    if window < 4 * FEW:
        return 0
    most = min(FEW, role.batch_size, FEW if role.chunk == "auto" else role.chunk)
    return most if window >= FEW * FEW else 1


def _in_order(rows: Iterable[Sequence[Any]], ids: Sequence[int], lane: str, token: str) -> list[Started]:
    """Return the tasks of this ticket in the order of `ids`; those it does not name come last."""
    name, _ = parts_of_lane(lane)
    tasks = {}
    for row in rows:
        tasks[row[0]] = Started._make((*row, name, token))
    if len(tasks) <= 1:
        return list(tasks.values())
    return [tasks.pop(task) for task in ids if task in tasks] + list(tasks.values())
