"""The clock all times are of."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text

CLOCK = text("SELECT clock_timestamp()")


def clock(connection: Connection) -> datetime:
    """Postgres' time, now."""
    now: datetime = connection.execute(CLOCK).scalar_one()
    return now
