"""The database's clock, which all times follow."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text

CLOCK = text("SELECT clock_timestamp()")


def clock(connection: Connection) -> datetime:
    """Return Postgres' current time."""
    now: datetime = connection.execute(CLOCK).scalar_one()
    return now
