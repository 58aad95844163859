"""The database's clock, which all times follow."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text

CLOCK = text("SELECT clock_timestamp()")

SPAN = text("""
SELECT statement_timestamp() - :seconds * interval '1 second' AS begun,
    statement_timestamp() + interval '1 minute' AS ahead
""")

#: SQL: the rows of history that ended lately. Its times are parameters, because the planner would otherwise plan for
#: every day that is kept, and lock each. `ahead` lies after the statement, to include what ends meanwhile.
LATELY = "completed_at > CAST(:begun AS timestamptz) AND completed_at < CAST(:ahead AS timestamptz)"


def clock(connection: Connection) -> datetime:
    """Return Postgres' current time."""
    now: datetime = connection.execute(CLOCK).scalar_one()
    return now


def lately(connection: Connection, seconds: float = 3600.0) -> dict[str, datetime]:
    """Return the parameters of `LATELY` for the last `seconds`."""
    return dict(connection.execute(SPAN, {"seconds": seconds}).mappings().one())
