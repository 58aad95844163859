"""Samples of tickets: how many were claimed in SQL and how many were in Redis, a row for each queue and minute."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlalchemy import text

from celeriac.insights.fleet.system import unstarted

if TYPE_CHECKING:
    from celeriac.app import Celeriac

# The first sample of a minute stays.
SAMPLE = text("""
INSERT INTO celeriac.ticket_samples (queue, minute, tickets, in_redis)
SELECT queue, date_trunc('minute', clock_timestamp()), tickets, in_redis
FROM jsonb_to_recordset(CAST(:samples AS jsonb)) AS sample (queue text, tickets integer, in_redis integer)
ON CONFLICT (queue, minute) DO NOTHING
""")


def sample(app: Celeriac) -> None:
    """Write this minute's samples; a queue with no ticket, in SQL or Redis, gets no row."""
    with app.database.reading() as connection:
        queues = unstarted(connection)
    lengths = [{"queue": q.queue, "tickets": q.tickets, "in_redis": app.probe.length(q.queue)} for q in queues]
    samples = [one for one in lengths if one["tickets"] or one["in_redis"] != 0]
    if samples:
        with app.database.statement() as connection:
            connection.execute(SAMPLE, {"samples": json.dumps(samples)})
