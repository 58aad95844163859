"""Operators' requests to workers."""

from __future__ import annotations

from sqlalchemy import Connection, text

from celeriac.errors import IllegalMove, Unknown
from celeriac.operate import audit
from celeriac.operate.audit import Change

DECOMMISSION = text("""
WITH found AS (
    SELECT worker_id, status FROM celeriac.workers WHERE worker_id = :worker_id FOR UPDATE
), asked AS (
    UPDATE celeriac.workers w SET status = 'draining', drain_asked_at = clock_timestamp() FROM found f
    WHERE w.worker_id = f.worker_id AND f.status = 'active'
)
SELECT status FROM found
""")


# INVARIANT: a worker that has reported since the request knows of it and ends; one that reports over HTTP gets the
# request in each answer.
RESUME = text("""
WITH found AS (
    SELECT worker_id, status, status = 'draining' AND drain_asked_at IS NOT NULL
        AND (reported_by IS NOT NULL OR last_heartbeat_at <= drain_asked_at) AS may
    FROM celeriac.workers WHERE worker_id = :worker_id FOR UPDATE
), resumed AS (
    UPDATE celeriac.workers w SET status = 'active', drain_asked_at = NULL FROM found f
    WHERE w.worker_id = f.worker_id AND f.may
)
SELECT status, may FROM found
""")


def decommission(connection: Connection, worker_id: str, *, by: str, why: str = "") -> Change:
    """Request a worker to finish its tasks and end; its next heartbeat reads that. Raises Unknown, IllegalMove."""
    was: str | None = connection.execute(DECOMMISSION, {"worker_id": worker_id}).scalar_one_or_none()
    if was is None:
        raise Unknown(f"there is no worker {worker_id!r}")
    if was == "stopped":
        raise IllegalMove(f"the worker {worker_id!r} has stopped; nothing was changed")
    change = Change(worker_id, {"status": was}, {"status": "draining"})
    audit.write(connection, "decommission", "worker", [change], by=by, why=why)
    return change


def resume(connection: Connection, worker_id: str, *, by: str, why: str = "") -> Change:
    """Withdraw a decommission that the worker has not read yet; otherwise it ends. Raises Unknown, IllegalMove."""
    worker = connection.execute(RESUME, {"worker_id": worker_id}).one_or_none()
    if worker is None:
        raise Unknown(f"there is no worker {worker_id!r}")
    if not worker.may:
        ends = "has heard that it is to end, or ends by itself: start another"
        reason = ends if worker.status == "draining" else f"is {worker.status}: nobody asked it to end"
        raise IllegalMove(f"the worker {worker_id!r} {reason}; nothing was changed")
    change = Change(worker_id, {"status": "draining"}, {"status": "active"})
    audit.write(connection, "resume", "worker", [change], by=by, why=why)
    return change
