"""Heartbeats over HTTP from workers other than Celery's; while one lives, only its own reporter writes to its row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, text

from celeriac.errors import IllegalMove
from celeriac.insights.fleet.resources import percent
from celeriac.operate import audit
from celeriac.operate.audit import Change
from celeriac.run import lease

KNOWN = text("SELECT hostname, pid, reported_by FROM celeriac.workers WHERE worker_id = :worker_id FOR UPDATE")


def report(connection: Connection, worker: lease.WorkerState, *, by: str) -> str:
    """Write the worker's heartbeat and return its status now. It is audited if the worker, its process or its reporter
    is new.

    Raises IllegalMove for the row of a worker that lives and that somebody else reports.
    """
    row = connection.execute(KNOWN, {"worker_id": worker.worker_id}).mappings().one_or_none()
    before = None if row is None else dict(row)
    after: dict[str, Any] = {"hostname": worker.hostname, "pid": worker.pid, "reported_by": by}
    status = lease.report(connection, worker, by=by)
    if status is None:
        raise IllegalMove(
            f"the worker {worker.worker_id!r} lives, and is not reported by {by!r}: report under another worker_id"
        )
    sample(connection, worker.worker_id, worker.resources)
    if before != after:
        audit.write(connection, "report", "worker", [Change(worker.worker_id, before, after)], by=by)
    return status


# A minute has the figures of its first sample, or of the first in which the worker backed off.
SAMPLE = text("""
INSERT INTO celeriac.worker_samples (worker_id, minute, memory_percent, cpu_percent, backoff_reason)
VALUES (:worker_id, date_trunc('minute', clock_timestamp()), :memory, :cpu, :reason)
ON CONFLICT (worker_id, minute) DO UPDATE
SET backoff_reason = excluded.backoff_reason, memory_percent = excluded.memory_percent,
    cpu_percent = excluded.cpu_percent
WHERE worker_samples.backoff_reason IS NULL AND excluded.backoff_reason IS NOT NULL
""")

#: Maximum characters of a reason that are kept.
LONGEST = 300


def sample(connection: Connection, worker_id: str, resources: Mapping[str, Any]) -> None:
    """Write a sample. `resources`: from the heartbeat; those of a worker in another language may be anything."""
    usage = {"memory": percent(resources.get("memory_percent")), "cpu": percent(resources.get("cpu_percent"))}
    connection.execute(SAMPLE, usage | {"worker_id": worker_id, "reason": backoff(resources)})


def backoff(resources: Mapping[str, Any]) -> str | None:
    """Return why the worker backs off and takes nothing new; None if it does not."""
    if not resources.get("is_backing_off"):
        return None
    return str(resources.get("backoff_reason") or "no reason told")[:LONGEST].replace("\x00", "")
