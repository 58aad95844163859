"""Heartbeat: a worker says it lives, renews its rows' leases and hears what is asked of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from celeriac.errors import IllegalMove, Unknown
from celeriac.operate import audit
from celeriac.operate.audit import Change

# INVARIANT: who was asked to drain stays so until its process ends, whatever its own heartbeats say.
WORKER = text("""
INSERT INTO workers (worker_id, hostname, pid, queues, concurrency, status, resources)
VALUES (:worker_id, :hostname, :pid, CAST(:queues AS jsonb), :concurrency, :status, CAST(:resources AS jsonb))
ON CONFLICT (worker_id) DO UPDATE
SET hostname = excluded.hostname, pid = excluded.pid, queues = excluded.queues, resources = excluded.resources,
    concurrency = excluded.concurrency, last_heartbeat_at = clock_timestamp(),
    started_at = CASE WHEN workers.pid = excluded.pid THEN workers.started_at ELSE clock_timestamp() END,
    status = CASE WHEN workers.status = 'draining' AND excluded.status = 'active' AND workers.pid = excluded.pid
        THEN 'draining' ELSE excluded.status END
RETURNING status
""")

# No process has this number: whoever reports under the name next is another.
ENDED = text("UPDATE workers SET status = 'stopped', pid = 0 WHERE worker_id = :worker_id")

DECOMMISSION = text("""
WITH found AS (
    SELECT worker_id, status FROM workers WHERE worker_id = :worker_id FOR UPDATE
), asked AS (
    UPDATE workers w SET status = 'draining' FROM found f WHERE w.worker_id = f.worker_id AND f.status = 'active'
)
SELECT status FROM found
""")

# INVARIANT: only rows of processes that live are renewed; a row whose process is gone goes stale by itself. One that is
# being settled or released needs no renewal: waiting for it with others in hand could be a deadlock.
RENEW = text("""
WITH living AS (
    SELECT id FROM worker_tasks
    WHERE status IN ('claimed', 'running') AND status = 'running'
        AND worker_id = :worker_id AND worker_pid = ANY(CAST(:pids AS integer[]))
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE worker_tasks SET last_heartbeat_at = clock_timestamp()
WHERE id = ANY (ARRAY(SELECT id FROM living))
RETURNING id, worker_pid AS pid, deadline_at < clock_timestamp() - :grace * interval '1 second' AS overdue
""")

STANDING = text("""
SELECT cancel_requested_at IS NOT NULL AS cancelled, extract(epoch FROM deadline_at - clock_timestamp()) AS left
FROM worker_tasks WHERE id = :id AND token = CAST(:token AS uuid) AND status = 'running'
""")

# INVARIANT: locked until the caller's transaction ends, so that nobody takes the row from this run before its writes
# are committed.
HOLD = text("""
SELECT id FROM worker_tasks WHERE id = :id AND token = CAST(:token AS uuid) AND status = 'running' FOR NO KEY UPDATE
""")

PROGRESS = text("""
UPDATE worker_tasks
SET progress = CAST(:progress AS jsonb), last_heartbeat_at = clock_timestamp(), updated_at = clock_timestamp(),
    deadline_at = clock_timestamp() + coalesce(timeout, :timeout) * interval '1 second'
WHERE id = :id AND token = CAST(:token AS uuid) AND status = 'running'
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    worker_id: str
    hostname: str
    pid: int
    queues: Sequence[str]
    concurrency: int
    status: str = "active"
    resources: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Running:
    """A renewed row. `overdue`: past its deadline by more than the grace; its process did not stop it."""

    id: int
    pid: int
    overdue: bool | None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a running row stands for the process that runs it. `left`: seconds to its deadline."""

    cancelled: bool
    left: float | None


def report(connection: Connection, worker: WorkerState) -> str:
    """The status it has now: 'draining' though it said 'active' asks it to drain."""
    row = {name: getattr(worker, name) for name in ("worker_id", "hostname", "pid", "concurrency", "status")}
    more = {"queues": json.dumps(list(worker.queues)), "resources": json.dumps(worker.resources)}
    return str(connection.execute(WORKER, row | more).scalar_one())


def ended(connection: Connection, worker_id: str) -> None:
    """The process that had this name is gone; what was asked of it is not asked of the next."""
    connection.execute(ENDED, {"worker_id": worker_id})


def decommission(connection: Connection, worker_id: str, *, by: str, why: str = "") -> Change:
    """Asks a worker to finish what it has and end; it hears with its next heartbeat. Raises Unknown, IllegalMove."""
    was: str | None = connection.execute(DECOMMISSION, {"worker_id": worker_id}).scalar_one_or_none()
    if was is None:
        raise Unknown(f"there is no worker {worker_id!r}")
    if was == "stopped":
        raise IllegalMove(f"the worker {worker_id!r} has stopped; nothing was changed")
    change = Change(worker_id, {"status": was}, {"status": "draining"})
    audit.write(connection, "decommission", "worker", [change], by=by, why=why)
    return change


def renew(connection: Connection, worker_id: str, pids: Sequence[int], grace: float) -> list[Running]:
    """Renews the leases of what these processes run."""
    rows = connection.execute(RENEW, {"worker_id": worker_id, "pids": list(pids), "grace": grace})
    return [Running(*row) for row in rows]


def standing(connection: Connection, task: int, token: str) -> Standing | None:
    """None: the row is no longer this run's."""
    row = connection.execute(STANDING, {"id": task, "token": token}).one_or_none()
    if row is None:
        return None
    return Standing(row.cancelled, None if row.left is None else float(row.left))


def hold(connection: Connection, task: int, token: str) -> bool:
    """Keeps the row this run's until the end of the caller's transaction; False if it is not."""
    return connection.execute(HOLD, {"id": task, "token": token}).one_or_none() is not None


def progress(connection: Connection, task: int, token: str, value: Any, timeout: float | None) -> bool:
    """Writes progress and starts the time limit anew; False if the row is no longer this run's."""
    given = {"id": task, "token": token, "progress": json.dumps(value), "timeout": timeout}
    return bool(connection.execute(PROGRESS, given).rowcount)
