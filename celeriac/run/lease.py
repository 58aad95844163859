"""Leases: a worker's heartbeat reports it alive, renews its tickets' leases and returns requests made of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from celeriac.run.start import COLUMNS
from celeriac.settle.outcome import Started

# INVARIANT: a worker that was asked to drain stays draining until its process ends, whatever its heartbeats say. Only
# its own reporter writes to a live worker's row, and only itself to that of a Celery worker, which has no reporter.
# `clock_ahead` compares the clocks as the statement arrives, so that waiting for a lock afterwards does not count.
WORKER = text("""
INSERT INTO celeriac.workers (worker_id, hostname, pid, queues, concurrency, status, resources, reported_by,
    version)
VALUES (:worker_id, :hostname, :pid, CAST(:queues AS jsonb), :concurrency, :status,
    CAST(:resources AS jsonb) || jsonb_strip_nulls(jsonb_build_object('clock_ahead',
        CAST(:clock AS double precision) - extract(epoch FROM statement_timestamp()))),
    :by, :version)
ON CONFLICT (worker_id) DO UPDATE
SET hostname = excluded.hostname, pid = excluded.pid, queues = excluded.queues, resources = excluded.resources,
    reported_by = excluded.reported_by, version = excluded.version,
    concurrency = excluded.concurrency, last_heartbeat_at = clock_timestamp(),
    started_at = CASE WHEN workers.pid = excluded.pid THEN workers.started_at ELSE clock_timestamp() END,
    status = CASE WHEN workers.status = 'draining' AND excluded.status = 'active' AND workers.pid = excluded.pid
        THEN 'draining' ELSE excluded.status END
WHERE excluded.reported_by IS NULL OR workers.reported_by = excluded.reported_by OR workers.status = 'stopped'
    OR NOT celeriac.is_heard(workers.last_heartbeat_at)
RETURNING status
""")

NOTE_GAP = text("""
SELECT celeriac.note_gap(
    (SELECT last_heartbeat_at FROM celeriac.workers WHERE worker_id = :worker_id AND pid = :pid), :silence)
""")

AWAITS_OTHERS = text("SELECT celeriac.awaits_others('infinity')")

# No process has the pid 0, so whoever reports under this name next counts as another process.
ENDED = text("UPDATE celeriac.workers SET status = 'stopped', pid = 0 WHERE worker_id = :worker_id")

# INVARIANT: only tickets of live processes are renewed; a ticket whose process is gone goes stale by itself. A locked
# ticket needs no renewal: waiting for it while holding others could be a deadlock, and its lease counts from its
# worker's heartbeat (`celeriac.heard_at`).
RENEW = text("""
UPDATE celeriac.tickets SET heartbeat_at = clock_timestamp()
WHERE token = ANY (ARRAY(
    SELECT token FROM celeriac.tickets WHERE worker_id = :worker_id AND worker_pid = ANY (CAST(:pids AS integer[]))
    FOR NO KEY UPDATE SKIP LOCKED))
""")

STANDING = text("""
SELECT t.cancel_requested_at IS NOT NULL AS cancelled FROM celeriac.tasks t
WHERE t.id = :id AND (SELECT :id = ANY (ids) FROM celeriac.tickets WHERE token = CAST(:token AS uuid))
""")

STANDINGS = text("""
SELECT i.id, coalesce((SELECT cancel_requested_at IS NOT NULL FROM celeriac.tasks WHERE id = i.id LIMIT 1), false)
FROM celeriac.tickets k, unnest(k.ids) AS i (id)
WHERE k.token = ANY (CAST(:tokens AS uuid[]))
""")

# INVARIANT: the ticket first, then its tasks, as in a settle, all locked until the caller's transaction ends: a cancel
# of one of these tasks is either seen here or comes after that.
ASKED = text("""
WITH held AS MATERIALIZED (
    SELECT ids FROM celeriac.tickets WHERE token = ANY (CAST(:tokens AS uuid[])) ORDER BY token FOR UPDATE
), mine AS MATERIALIZED (
    SELECT t.* FROM held, unnest(held.ids) AS i (id), LATERAL (
        SELECT id, cancel_requested_at FROM celeriac.tasks WHERE id = i.id LIMIT 1 FOR UPDATE) AS t
    WHERE i.id = ANY (CAST(:ids AS bigint[]))
)
SELECT id FROM mine WHERE cancel_requested_at IS NOT NULL
""")

BOUNDS = text("SELECT unique_key, expires_at FROM celeriac.tasks WHERE id = :id")

PROGRESS = text("""
WITH mine AS (
    UPDATE celeriac.tickets SET heartbeat_at = clock_timestamp()
    WHERE token = CAST(:token AS uuid) AND :id = ANY (ids) RETURNING token
)
UPDATE celeriac.tasks t SET progress = CAST(:progress AS jsonb), updated_at = clock_timestamp()
FROM mine WHERE t.id = :id RETURNING true
""")

RUNNING = text(f"""
SELECT {COLUMNS}, t.role, CAST(k.token AS text)
FROM celeriac.tasks t JOIN celeriac.tickets k ON t.id = ANY (k.ids)
WHERE t.id = :id AND k.worker_id = :worker_id AND k.worker_pid = :pid
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
    version: str | None = None


def report(connection: Connection, worker: WorkerState, *, by: str | None = None) -> str | None:
    """Write the worker's heartbeat and return its status now:
    'draining', though it reported 'active', asks it to drain.

    `by`: who reports it, where that is not the worker itself. None: `by` may not report this worker, and nothing was
    written.
    """
    names = ("worker_id", "hostname", "pid", "concurrency", "status", "version")
    row = {name: getattr(worker, name) for name in names}
    more = {"queues": json.dumps(list(worker.queues)), "resources": json.dumps(worker.resources)}
    clock = time.time() if by is None else None
    status: str | None = connection.execute(WORKER, row | more | {"by": by, "clock": clock}).scalar_one_or_none()
    return status


def note_gap(connection: Connection, worker_id: str, pid: int, silence: float) -> None:
    """Record, before a heartbeat that comes after `silence` seconds, a gap in which nobody could renew a lease."""
    connection.execute(NOTE_GAP, {"worker_id": worker_id, "pid": pid, "silence": silence})


def awaits_others(connection: Connection) -> bool:
    """Return whether a newcomer has just been the first to write after a silence of all others."""
    return bool(connection.execute(AWAITS_OTHERS).scalar_one())


def ended(connection: Connection, worker_id: str) -> None:
    """Mark a dead worker of this name as stopped; its decommission request does not apply to its successor."""
    connection.execute(ENDED, {"worker_id": worker_id})


def renew(connection: Connection, worker_id: str, pids: Sequence[int]) -> int:
    """Renew the leases of the tickets that these processes run; return how many."""
    return connection.execute(RENEW, {"worker_id": worker_id, "pids": list(pids)}).rowcount


def is_cancelled(connection: Connection, task: int, token: str) -> bool | None:
    """Return whether somebody asked the run to stop; None: the task is no longer this run's."""
    cancelled: bool | None = connection.execute(STANDING, {"id": task, "token": token}).scalar_one_or_none()
    return cancelled


def asked_to_stop(connection: Connection, tasks: Sequence[Started]) -> set[int]:
    """Return the ids of these tasks that somebody has cancelled. Nobody can cancel the others before the caller's
    commit.
    """
    wanted = {"ids": [task.id for task in tasks], "tokens": sorted({task.token for task in tasks})}
    return set(connection.execute(ASKED, wanted).scalars()) if tasks else set()


def standing(connection: Connection, tokens: Iterable[str]) -> dict[int, bool]:
    """Return the tasks that these tickets still hold, and whether each was asked to stop."""
    rows = connection.execute(STANDINGS, {"tokens": sorted(tokens)}).all()
    return {row[0]: row[1] for row in rows}


def progress(connection: Connection, task: int, token: str, value: Any) -> bool:
    """Write progress and renew the lease; return False if the task is no longer this run's. The write is tried twice:
    see `release.hold`.
    """
    wanted = {"id": task, "token": token, "progress": json.dumps(value)}
    return any(connection.execute(PROGRESS, wanted).scalar_one_or_none() for _ in range(2))


def bounds(connection: Connection, task: int) -> tuple[str | None, str | None]:
    """Return the task's unique key and when it expires, as its row has them."""
    row = connection.execute(BOUNDS, {"id": task}).one_or_none()
    return (None, None) if row is None else (row.unique_key, row.expires_at and row.expires_at.isoformat())


def running(connection: Connection, task: int, worker_id: str, pid: int) -> Started | None:
    """Return a task as the process that runs it has it; None if it does not run it (any more)."""
    row = connection.execute(RUNNING, {"id": task, "worker_id": worker_id, "pid": pid}).one_or_none()
    return None if row is None else Started(*row)
