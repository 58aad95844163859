"""Workers, as their last heartbeat left them."""

from __future__ import annotations

from tests.processes import Rows

WORKER = """INSERT INTO celeriac.workers (worker_id, hostname, pid, concurrency, queues, resources, last_heartbeat_at)
    VALUES (:w, 'host', 1, :concurrency, CAST(:queues AS jsonb), CAST(:resources AS jsonb),
        now() - :ago * interval '1 second')"""


def work(
    rows: Rows, name: str = "w", *, ago: float = 0, queues: str = "[]", resources: str = "{}", concurrency: int = 8
) -> None:
    rows(WORKER, w=name, ago=ago, queues=queues, resources=resources, concurrency=concurrency)
