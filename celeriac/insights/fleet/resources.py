"""Read what workers report about themselves, and count their busy slots.

A worker in another language may report anything; nothing here can fail.
"""

from __future__ import annotations

import sys
from typing import Any


def percent(reported: Any) -> float | None:
    """Return a reported share (percent) within bounds; None if it is no number."""
    if isinstance(reported, bool) or not isinstance(reported, int | float) or not abs(reported) <= sys.float_info.max:
        return None
    return round(float(min(max(reported, 0.0), 1000.0)), 1)


def number(name: str, resources: str = "resources") -> str:
    """Return the SQL expression of a number in `celeriac.workers.resources`; NULL if it is no number.

    It is rounded to six digits and bounded by ±10^12: JSON's numbers have no bounds, those of a double have.
    """
    value = f"CAST({resources} ->> '{name}' AS numeric)"
    return (
        f"CASE WHEN jsonb_typeof({resources} -> '{name}') = 'number' "
        f"THEN CAST(round(least(greatest({value}, -1e12), 1e12), 6) AS double precision) END"
    )


def is_true(name: str, resources: str = "resources") -> str:
    """Return the SQL condition that this resource is true; only a boolean can be."""
    return f"coalesce({resources} -> '{name}' = 'true', false)"


#: SQL: true if a worker `w` runs its slots in one process (threads, greenlets, coroutines). Release 0.1.0 reports none.
SHARES_PROCESS = is_true("shares_process", "w.resources")

#: SQL: the number of processes with a ticket, and of tasks, of each worker.
HELD = """
SELECT worker_id, count(DISTINCT worker_pid) AS processes, sum(cardinality(ids)) AS tasks
FROM celeriac.tickets WHERE worker_id IS NOT NULL GROUP BY worker_id
"""

#: SQL: the busy slots of a worker `w`, given its `held` row. A process runs its ticket's tasks one by one; slots that
#: share a process may hold more tasks than slots, which start in a moment.
BUSY = f"""CAST(least(w.concurrency,
        coalesce(CASE WHEN {SHARES_PROCESS} THEN held.tasks ELSE held.processes END, 0)) AS integer)"""


def is_sharing(worker: str) -> str:
    """Return the SQL of `SHARES_PROCESS` for this worker's id, even if it has stopped: a look-up in many rows."""
    return f"coalesce((SELECT {SHARES_PROCESS} FROM celeriac.workers w WHERE w.worker_id = {worker} LIMIT 1), false)"
