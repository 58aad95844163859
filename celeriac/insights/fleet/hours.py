"""The last hour, minute by minute: what each worker used and did, and how many tickets each queue had."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from sqlalchemy import Connection, text

from celeriac.insights.tasks.clock import LATELY, lately
from celeriac.insights.tasks.counting import Count

#: Maximum number of minutes that are returned: an hour's, and the current one.
MINUTES = 61

#: Maximum number of each role's newest ended tasks that are read.
NEWEST = 1_000

# BETWEEN: with "= :worker_id" Postgres could walk an index by minutes alone, past all other workers' samples.
SAMPLES = text("""
SELECT minute, memory_percent, cpu_percent, backoff_reason FROM celeriac.worker_samples
WHERE worker_id BETWEEN :worker_id AND :worker_id
    AND minute > statement_timestamp() - interval '1 hour' - interval '1 minute'
ORDER BY worker_id, minute LIMIT :most
""")

# Each LIMIT has its index's ORDER BY.
DONE = text(f"""
SELECT h.worker_id, count(*) AS n, (SELECT count(*) FROM celeriac.roles r WHERE EXISTS (
        SELECT FROM celeriac.history
        WHERE role = r.role AND {LATELY}
        ORDER BY completed_at DESC OFFSET :newest LIMIT 1)) AS cut
FROM celeriac.roles r CROSS JOIN LATERAL (
    SELECT worker_id FROM celeriac.history
    WHERE role = r.role AND {LATELY}
    ORDER BY completed_at DESC LIMIT :newest
) AS h
WHERE h.worker_id IS NOT NULL GROUP BY h.worker_id
""")

#: Maximum number of queues that are returned, by name.
QUEUES = 100

TICKETS = text("""
SELECT queue, minute, tickets, in_redis FROM celeriac.ticket_samples
WHERE minute > statement_timestamp() - interval '1 hour' - interval '1 minute' ORDER BY queue, minute LIMIT :most
""")


@dataclass(frozen=True, slots=True)
class Sample:
    """A minute of a worker. `backoff_reason`: None if it did not back off. Percentages: None if not reported."""

    minute: datetime
    memory_percent: float | None
    cpu_percent: float | None
    backoff_reason: str | None


@dataclass(frozen=True, slots=True)
class TicketSample:
    """A minute of a queue: tickets that nobody had started, and messages in Redis; None if Redis did not answer."""

    queue: str
    minute: datetime
    tickets: int
    in_redis: int | None

    @property
    def ahead(self) -> int | None:
        """The number of tickets that were not in Redis: workers had just taken them, or they were lost."""
        return None if self.in_redis is None else max(0, self.tickets - self.in_redis)


def worker_hour(connection: Connection, worker_id: str) -> list[Sample]:
    """Return the worker's minutes, oldest first; minutes in which it did not report are missing."""
    parameters = {"worker_id": worker_id, "most": MINUTES}
    return [Sample(*row) for row in connection.execute(SAMPLES, parameters)]


def done_by_worker(connection: Connection) -> dict[str, Count]:
    """Count the kept tasks that each worker ended in the last hour, among the newest 1,000 of each role: a lower bound
    where a role had more. For a role that keeps no successes only failures are counted.
    """
    rows = connection.execute(DONE, {"newest": NEWEST} | lately(connection))
    return {row.worker_id: Count(row.n, exact=not row.cut) for row in rows}


def ticket_hours(connection: Connection) -> dict[str, list[TicketSample]]:
    """Return the minutes of each queue, oldest first; minutes with nothing are missing."""
    rows = [TicketSample(*row) for row in connection.execute(TICKETS, {"most": QUEUES * MINUTES})]
    return {queue: list(samples) for queue, samples in groupby(rows, lambda sample: sample.queue)}
