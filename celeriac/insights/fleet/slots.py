"""SQL that counts a worker's busy slots: its processes that hold a ticket, or its tasks where they share a process."""

from __future__ import annotations

from celeriac.insights.fleet.resources import is_true

#: True if the slots of a worker `w` are threads, greenlets or coroutines of one process. Workers of 0.1.0 do not report
#: it.
SHARES_PROCESS = is_true("shares_process", "w.resources")


def is_sharing(worker: str) -> str:
    """Return SQL for whether this worker is of that kind, also if it is gone by now: a look-up by its id, as the rows
    of workers that have stopped are many.
    """
    return f"coalesce((SELECT {SHARES_PROCESS} FROM celeriac.workers w WHERE w.worker_id = {worker} LIMIT 1), false)"


#: The processes and tasks that each worker holds.
HELD = """
SELECT worker_id, count(DISTINCT worker_pid) AS processes, sum(cardinality(ids)) AS tasks
FROM celeriac.tickets WHERE worker_id IS NOT NULL GROUP BY worker_id
"""

#: The busy slots of a worker `w` that holds `held`. A process runs the tasks of its ticket one by one. One whose slots
#: share it may hold more than it has slots: what starts in a moment.
BUSY = f"""CAST(least(w.concurrency,
        coalesce(CASE WHEN {SHARES_PROCESS} THEN held.tasks ELSE held.processes END, 0)) AS integer)"""
