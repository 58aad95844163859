"""Heartbeats over HTTP from workers that are no Celery worker;
while one lives, only its own reporter writes to its row.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from celeriac.errors import IllegalMove
from celeriac.operate import audit
from celeriac.operate.audit import Change
from celeriac.run import lease, samples

KNOWN = text("SELECT hostname, pid, reported_by FROM celeriac.workers WHERE worker_id = :worker_id FOR UPDATE")


def report(connection: Connection, worker: lease.WorkerState, *, by: str) -> str:
    """Write the worker's heartbeat and return its status now. It is audited if it is new, or another than before.

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
    samples.sample(connection, worker.worker_id, worker.resources)
    if before != after:
        audit.write(connection, "report", "worker", [Change(worker.worker_id, before, after)], by=by)
    return status
