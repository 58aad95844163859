"""Find workers that report but are unfit: short of memory, of an older release, or with a wrong clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, text

from celeriac.insights.fleet.resources import is_true, number
from celeriac.store.states import GONE

#: Most workers of each kind that are returned.
MOST = 20

# The governor's back-off was over, and memory still short, so that waiting alone does not end it.
SHORT = text(f"""
SELECT worker_id, resources ->> 'backoff_reason' AS reason, {number("memory_mb")} AS megabytes,
    (SELECT min(memory_percent) FROM celeriac.worker_samples s WHERE s.worker_id = w.worker_id) AS least,
    (SELECT CAST(coalesce(sum(cardinality(ids)), 0) AS integer) FROM celeriac.tickets k
        WHERE k.worker_id = w.worker_id) AS tasks
FROM celeriac.workers w
WHERE status = 'active' AND {is_true("is_short_of_memory")}
    AND last_heartbeat_at > statement_timestamp() - :heard * interval '1 second'
ORDER BY last_heartbeat_at DESC LIMIT :most
""")

# A deployment's number, and before it the version, each as numbers that can be compared: a version may be a date of 14
# digits. Versions of another code's workers are compared with one another.
_RELEASE = """
    CAST(string_to_array(substring({0} FROM '^[0-9]+(?:[.][0-9]+)*'), '.') AS numeric[])
        || coalesce(CAST(substring({0} FROM '[(]deployment ([0-9]{{1,9}})[)]') AS numeric), 0)
"""

# `since`: how long ago the first worker of a newer release started that serves one of its queues.
OLDER = text(f"""
WITH active AS MATERIALIZED (
    SELECT worker_id, version, queues, started_at, reported_by, {_RELEASE.format("version")} AS release
    FROM celeriac.workers
    WHERE status = 'active' AND version ~ '^[0-9]'
        AND last_heartbeat_at > statement_timestamp() - :heard * interval '1 second'
)
SELECT old.worker_id, old.version, newer.version AS newer,
    CAST(extract(epoch FROM statement_timestamp() - newer.started_at) AS double precision) AS seconds
FROM active old CROSS JOIN LATERAL (
    SELECT version, started_at FROM active new
    WHERE new.release > old.release AND new.reported_by IS NOT DISTINCT FROM old.reported_by
        AND EXISTS (SELECT FROM jsonb_array_elements_text(old.queues) AS q (queue) WHERE new.queues ? q.queue)
    ORDER BY started_at LIMIT 1) AS newer
ORDER BY newer.started_at, old.worker_id LIMIT :most
""")

CLOCKS = text(f"""
SELECT worker_id, {number("clock_ahead")} AS ahead FROM celeriac.workers
WHERE status <> 'stopped' AND jsonb_typeof(resources -> 'clock_ahead') = 'number'
    AND last_heartbeat_at > statement_timestamp() - :heard * interval '1 second'
ORDER BY abs({number("clock_ahead")}) DESC LIMIT :most
""")


def short_of_memory(connection: Connection) -> Sequence[Row[Any]]:
    """Return worker, reason, megabytes in use, least share (percent) within two hours, and the number of its tasks."""
    return connection.execute(SHORT, {"heard": GONE, "most": MOST}).all()


def older(connection: Connection) -> Sequence[Row[Any]]:
    """Return workers that share a queue with a newer release: both versions, and the seconds since that one started."""
    return connection.execute(OLDER, {"heard": GONE, "most": MOST}).all()


def clocks(connection: Connection) -> Sequence[Row[Any]]:
    """Return worker and the seconds its clock was ahead of the database's at its last heartbeat, the worst first."""
    return connection.execute(CLOCKS, {"heard": GONE, "most": MOST}).all()
