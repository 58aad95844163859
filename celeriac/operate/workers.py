"""Workers: what operators ask of them."""

from __future__ import annotations

from sqlalchemy import Connection, text

from celeriac.errors import IllegalMove, Unknown
from celeriac.operate import audit
from celeriac.operate.audit import Change

DECOMMISSION = text("""
WITH found AS (
    SELECT worker_id, status FROM celeriac.workers WHERE worker_id = :worker_id FOR UPDATE
), asked AS (
    UPDATE celeriac.workers w SET status = 'draining' FROM found f
    WHERE w.worker_id = f.worker_id AND f.status = 'active'
)
SELECT status FROM found
""")


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
