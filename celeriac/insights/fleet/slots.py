"""SQL that counts a worker's busy slots: its processes that hold a ticket, or its tasks where they share a process."""

from __future__ import annotations

from celeriac.insights.fleet.resources import is_true

#: Whether the slots of a worker `w` are threads, greenlets or coroutines of one process. Workers of 0.1.0 do not report
#: it.
SHARES_PROCESS = is_true("shares_process", "w.resources")

#: The workers of that kind, also those that are gone by now.
SHARING = f"SELECT worker_id FROM celeriac.workers w WHERE {SHARES_PROCESS}"

#: What each worker holds.
HELD = """
SELECT worker_id, count(DISTINCT worker_pid) AS processes, sum(cardinality(ids)) AS tasks
FROM celeriac.tickets WHERE worker_id IS NOT NULL GROUP BY worker_id
"""

#: The busy slots of a worker `w` that holds `held`. A process runs the tasks of its ticket one by one. One whose slots
#: share it may hold more than it has slots: what starts in a moment.
BUSY = f"""CAST(least(w.concurrency,
        coalesce(CASE WHEN {SHARES_PROCESS} THEN held.tasks ELSE held.processes END, 0)) AS integer)"""
