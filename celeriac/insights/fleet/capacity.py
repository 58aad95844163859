"""Capacity: what each role has to do, how fast it goes, how many workers that takes, and what each worker reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from celeriac.insights.fleet.resources import SHARES_PROCESS
from celeriac.store.role_names import is_built_in

#: The horizons of `workers_needed`, in hours.
HORIZONS = (1, 4, 8)

#: Maximum number of tasks counted in each state table, unless a lower bound is given; beyond it a count is "at least".
MOST = 300_000

CAPACITY = text("""
SELECT * FROM celeriac.capacity(:most) WHERE CAST(:role AS text) IS NULL OR role = :role ORDER BY role
""")

# A process runs one task at a time, its ticket's first. Where slots share a process, as many run as there are slots.
HEARTBEATS = text(f"""
WITH live AS (
    SELECT w.worker_id, w.concurrency, w.status, w.resources, {SHARES_PROCESS} AS shares FROM celeriac.workers w
    WHERE w.status <> 'stopped' AND celeriac.is_heard(w.last_heartbeat_at)
        AND (CAST(:worker_id AS text) IS NULL OR w.worker_id = :worker_id)
), started AS (
    SELECT DISTINCT ON (live.worker_id, k.worker_pid, slot.id) live.worker_id, k.ids[n] AS id, k.started_at
    FROM live JOIN celeriac.tickets k ON k.worker_id = live.worker_id
    CROSS JOIN LATERAL generate_series(1, CASE WHEN live.shares THEN cardinality(k.ids) ELSE 1 END) AS n
    CROSS JOIN LATERAL (SELECT CASE WHEN live.shares THEN k.ids[n] END AS id) AS slot
    ORDER BY live.worker_id, k.worker_pid, slot.id, k.started_at, k.ids[n]
)
SELECT live.worker_id, live.concurrency, live.status, live.resources, ARRAY(
    SELECT id FROM started s WHERE s.worker_id = live.worker_id ORDER BY started_at, id
    LIMIT CASE WHEN live.shares THEN live.concurrency END) AS ids
FROM live ORDER BY live.worker_id
""")

RESOURCES = (
    "memory_mb", "memory_total_mb", "memory_rss_mb", "memory_percent", "cpu_user_ms", "cpu_system_ms", "cpu_percent",
    "is_backing_off", "backoff_reason",
)  # fmt: skip

_COUNTED = ("pending_tasks", "claimed_tasks", "running_tasks", "completed_last_hour", "failed_last_hour")

#: Number of points of a curve after the first; hours that it shows if its length is unknown, and at most.
POINTS, USUAL, LONGEST = 24, 8.0, 168.0


@dataclass(frozen=True, slots=True)
class Drain:
    """A forecast. Rates are tasks an hour, of all workers together. `lasts`: hours until nothing waits, None if that
    never happens. `needed`: workers to be done within the requested hours. `points`: hours from now, and what waits
    then.
    """

    arrival: float
    service: float
    lasts: float | None
    needed: int | None
    points: list[tuple[float, float]]


def workers_needed(pending: int, tasks_per_worker_hour: float | None) -> dict[str, int | None]:
    """Return the workers that clear the queue within 1, 4 and 8 hours; None while one worker's rate is unknown."""
    return {f"for_{h}_hour{'s' * (h > 1)}": _workers(pending, tasks_per_worker_hour, h) for h in HORIZONS}


def _workers(pending: int, tasks_per_worker_hour: float | None, hours: int) -> int | None:
    if pending == 0:
        return 0
    return math.ceil(pending / (tasks_per_worker_hour * hours)) if tasks_per_worker_hour else None


def capacity(connection: Connection, role: str | None = None, *, most: int = MOST) -> list[dict[str, Any]]:
    """Return each role's row of `v_worker_capacity`, `workers_needed`, and of the last hour `failed_rate`,
    `retry_success_rate` (0 to 1) and `average_wait` (seconds), None without data. `at_least`: a count of its tasks has
    stopped at `most`. Roles that share a queue are each computed as if its workers served that role alone. A built-in
    role without any counts is left out, unless it is requested.
    """
    rows = [dict(row) for row in connection.execute(CAPACITY, {"role": role, "most": most}).mappings()]
    listed = [row for row in rows if role is not None or not is_built_in(row["role"]) or any(map(row.get, _COUNTED))]
    needed = (workers_needed(row["pending_tasks"], row["tasks_per_worker_hour"]) for row in listed)
    return [row | {"workers_needed": workers} for row, workers in zip(listed, needed, strict=True)]


def heartbeats(connection: Connection, worker_id: str | None = None) -> list[dict[str, Any]]:
    """Return each live worker's last report, with the ids of what it runs now."""
    return [_heartbeat(*row) for row in connection.execute(HEARTBEATS, {"worker_id": worker_id})]


def _heartbeat(
    worker_id: str, concurrency: int, status: str, resources: Mapping[str, Any], ids: list[int]
) -> dict[str, Any]:
    return {
        "worker_id": worker_id,
        "current_task_id": ids[0] if ids else None,
        "current_task_ids": ids,
        "active_task_count": len(ids),
        "max_concurrent_tasks": concurrency,
        "status": status,
        "resources": {name: resources.get(name) for name in RESOURCES},
    }


def drain(waiting: int, arrival: float, per_worker: float, workers: float, hours: float | None = None) -> Drain:
    """Forecast the queue. `per_worker`: tasks a worker does in an hour, above 0; `hours`: time to do it in, or None."""
    service = per_worker * workers
    gain = service - arrival
    lasts = 0.0 if not waiting else waiting / gain if gain > 0 else None
    needed = math.ceil((waiting / hours + arrival) / per_worker) if hours else None
    end = min(hours or (1.25 * lasts if lasts else USUAL), LONGEST)
    times = [end * n / POINTS for n in range(POINTS + 1)]
    return Drain(arrival, service, lasts, needed, [(at, max(0.0, waiting - gain * at)) for at in times])
