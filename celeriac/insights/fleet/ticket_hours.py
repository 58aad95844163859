"""Tickets over the last hour: how many were claimed in SQL for each queue, and how many messages were in Redis."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from sqlalchemy import Connection, text

#: Maximum number of queues that are returned, by name, and of minutes of each.
QUEUES, MINUTES = 100, 61

SAMPLES = text("""
SELECT queue, minute, tickets, in_redis FROM celeriac.ticket_samples
WHERE minute > statement_timestamp() - interval '1 hour' - interval '1 minute' ORDER BY queue, minute LIMIT :most
""")


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


def ticket_hours(connection: Connection) -> dict[str, list[TicketSample]]:
    """Return the minutes of each queue, oldest first; minutes with nothing are missing."""
    rows = [TicketSample(*row) for row in connection.execute(SAMPLES, {"most": QUEUES * MINUTES})]
    return {queue: list(samples) for queue, samples in groupby(rows, lambda sample: sample.queue)}
