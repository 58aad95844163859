"""Rows with a past, for tests of what reads it."""

from __future__ import annotations

import json
from typing import Any

from tests.processes import Rows

#: Each by a process of its own. Written directly: the view moves one task at a time.
FINISHED = """
INSERT INTO celeriac.history (id, task_id, role, account, status, priority, aged, worker_id, worker_pid, created_at,
    scheduled_for, started_at, completed_at, retry_count, max_retries, tries, max_rounds, losses, args, kwargs,
    error_message)
SELECT nextval('celeriac.tasks_id_seq'), CAST(gen_random_uuid() AS text), :role, '', :status, 0, 0, 'w', i,
    begun - :waited * interval '1 second', begun - :waited * interval '1 second', begun,
    now() - :ago * interval '1 minute', :retry_count, 3, 0, 1, 0, '[]', '{}',
    CASE WHEN :status = 'failed' THEN 'why' END
FROM generate_series(1, :n) i,
    LATERAL (SELECT now() - :ago * interval '1 minute' - :seconds * interval '1 second' AS begun) AS b
"""

FAILED = """INSERT INTO worker_tasks (task_id, role, status, completed_at, error_message)
    SELECT gen_random_uuid(), :role, 'failed', now() - n * interval '1 second', :says FROM generate_series(1, :n) n"""


def finished(rows: Rows, role: str = "work", status: str = "completed", n: int = 1, **more: Any) -> None:
    """`n` tasks that ended `ago` minutes ago, ran for `seconds` and had `waited` so many before."""
    rows(
        FINISHED,
        **{"role": role, "status": status, "n": n, "ago": 1, "seconds": 1, "waited": 0, "retry_count": 0} | more,
    )


def fail(rows: Rows, n: int, says: str, role: str = "work") -> None:
    """`n` tasks that failed, a second before one another."""
    rows(FAILED, n=n, says=says, role=role)


def registered(rows: Rows, *roles: str, **definition: Any) -> None:
    for role in roles:
        rows("INSERT INTO roles (role, definition) VALUES (:r, CAST(:d AS jsonb))", r=role, d=json.dumps(definition))


def live_worker(rows: Rows, name: str = "w", queues: str = '["work"]', concurrency: int = 1, **more: Any) -> None:
    given = {"pid": 1, "status": "active", "ago": 0, "resources": "{}"} | more
    rows(
        """INSERT INTO workers (worker_id, hostname, pid, queues, concurrency, status, last_heartbeat_at, resources)
        VALUES (:name, 'host', :pid, CAST(:queues AS jsonb), :concurrency, :status,
            now() - :ago * interval '1 minute', CAST(:resources AS jsonb))""",
        name=name, queues=queues, concurrency=concurrency, **given,
    )  # fmt: skip
