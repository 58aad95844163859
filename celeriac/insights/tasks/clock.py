"""The database's clock, which all times follow."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text

CLOCK = text("SELECT clock_timestamp()")

SPAN = text("""
SELECT statement_timestamp() - :seconds * interval '1 second' AS begun,
    statement_timestamp() + interval '1 minute' AS ahead
""")

#: What ended lately, as a condition on rows of history. The planner has to know its times, or else it plans for every
#: day that is kept, and locks each. `ahead` is later than the statement, for what ends until then.
LATELY = "completed_at > CAST(:begun AS timestamptz) AND completed_at < CAST(:ahead AS timestamptz)"


def clock(connection: Connection) -> datetime:
    """Return Postgres' current time."""
    now: datetime = connection.execute(CLOCK).scalar_one()
    return now


def lately(connection: Connection, seconds: float = 3600.0) -> dict[str, datetime]:
    """Return the parameters of `LATELY`, for what ended in the last so many seconds."""
    return dict(connection.execute(SPAN, {"seconds": seconds}).mappings().one())
