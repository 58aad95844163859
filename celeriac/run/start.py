"""Start: the one gate between a ticket and a run. Only the right token of the right role passes, and only once."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from celeriac.store.connections import Prepared
from celeriac.store.started import Started

COLUMNS = """
    t.id, t.task_id, t.role, t.account, t.args, t.kwargs, t.headers, t.retry_count, t.max_retries, t.tries,
    t.max_rounds, t.losses, t.priority, t.timeout, t.parent_id, t.lock_key"""

# :again: an earlier ask may have been answered on a connection that broke; what it started is this process's already.
START = text(f"""
WITH mine AS (
    UPDATE celeriac.tickets
    SET worker_id = :worker_id, worker_pid = :pid, started_at = clock_timestamp(), heartbeat_at = clock_timestamp()
    WHERE token = CAST(:token AS uuid) AND role = :role
        AND (worker_id IS NULL OR :again AND worker_id = :worker_id AND worker_pid = :pid)
    RETURNING ids, token
)
SELECT {COLUMNS}, CAST(m.token AS text), t.expires_at <= statement_timestamp() AS expired
FROM celeriac.tasks t, mine m WHERE t.id = ANY (ARRAY(SELECT unnest(ids) FROM mine))
""")

# What a pass of this process has claimed for it, in the pass's transaction.
OWN = text(f"""
SELECT {COLUMNS}, CAST(:token AS text), t.expires_at <= statement_timestamp() AS expired
FROM celeriac.tasks t WHERE t.id = ANY (CAST(:ids AS bigint[]))
""")

# INVARIANT: nothing else of the role is ready, few are active, and neither role nor account is paused or bounded: a
# pass would claim this task, and nothing else. Claimed and started in one statement.
START_LONE = text(f"""
WITH task AS MATERIALIZED (
    SELECT * FROM (SELECT * FROM celeriac.tasks WHERE id = :id LIMIT 1) AS by_id WHERE role = :role
), idle AS MATERIALIZED (
    SELECT (SELECT count(*) FROM (
            SELECT FROM celeriac.ready WHERE role = :role ORDER BY account LIMIT 2) AS entries) < 2
        AND coalesce((SELECT sum(cardinality(ids)) FROM celeriac.tickets
            WHERE role = :role AND claimed_at >= coalesce(
                (SELECT held_since FROM celeriac.batcher(:role)), '-infinity')), 0) < :few
        AND NOT EXISTS (SELECT FROM celeriac.roles WHERE role = :role AND paused)
        AND NOT EXISTS (SELECT FROM task JOIN celeriac.account_policies p USING (account)
            WHERE p.paused OR p.cap IS NOT NULL) AS yes
), taken AS MATERIALIZED (
    SELECT r.tableoid, r.ctid FROM task t JOIN celeriac.ready r ON r.role = t.role AND r.account = t.account
        AND r.priority = t.priority AND r.due_at = t.scheduled_for AND r.id = t.id
    WHERE (SELECT yes FROM idle) FOR UPDATE OF r SKIP LOCKED
), gone AS (
    DELETE FROM celeriac.ready r USING taken WHERE r.ctid = taken.ctid AND r.tableoid = taken.tableoid
    RETURNING r.id, r.account
), held AS (
    INSERT INTO celeriac.tickets (token, role, ids, accounts, worker_id, worker_pid, started_at, heartbeat_at)
    SELECT CAST(:token AS uuid), :role, ARRAY[id], ARRAY[account], :worker_id, :pid, clock_timestamp(),
        clock_timestamp()
    FROM gone
    RETURNING token
)
SELECT {COLUMNS}, CAST(h.token AS text), t.expires_at <= statement_timestamp() AS expired FROM task t, held h
""")

_ME = {"role": "text", "token": "text", "worker_id": "text", "pid": "integer"}
_START = Prepared(START, _ME | {"again": "boolean"})
_START_LONE = Prepared(START_LONE, _ME | {"id": "bigint", "few": "integer"})

#: A role with fewer active tasks than this is idle.
FEW = 16


def start(
    connection: Connection, role: str, ids: Sequence[int], token: str, *, worker_id: str, pid: int, again: bool = False
) -> list[Started]:
    """What this ticket of this role holds, in the order of `ids`; a ticket that is not, or was started, starts nothing.

    `again`: asked before, without an answer.
    """
    wanted = {"role": role, "token": token, "worker_id": worker_id, "pid": pid, "again": again}
    return _in_order([Started(*row) for row in _START.on(connection, wanted)], ids)


def own(connection: Connection, ids: Sequence[int], token: str) -> list[Started]:
    """What a pass has claimed and started for this process, in the order of `ids`."""
    return _in_order([Started(*row) for row in connection.execute(OWN, {"ids": list(ids), "token": token})], ids)


def start_lone(
    connection: Connection, role: str, task: int, token: str, *, worker_id: str, pid: int, again: bool = False
) -> list[Started]:
    """The task, claimed and started under this token, if it waits and its role is idle: no pass could do otherwise."""
    me = {"role": role, "token": token, "worker_id": worker_id, "pid": pid}
    if again and (mine := start(connection, role, [task], token, worker_id=worker_id, pid=pid, again=True)):
        return mine
    return [Started(*row) for row in _START_LONE.on(connection, me | {"id": task, "few": FEW})]


def _in_order(rows: Sequence[Started], ids: Sequence[int]) -> list[Started]:
    place = {task: n for n, task in reversed(list(enumerate(ids)))}
    return sorted(rows, key=lambda row: place.get(row.id, len(place)))
