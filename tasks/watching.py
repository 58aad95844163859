"""What the application watches besides the engine's rules: see docs/observability.md."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from celeriac.alerts import Rule
from tasks.stale_thumbnails import HOUR, count, stale_after
from tasks.thumbnails import SITES


def stuck_thumbnails(connection: Connection) -> Mapping[str, float]:
    """How many builds of each table are stuck."""
    seconds = stale_after()
    return {site.__tablename__: connection.execute(count(site, seconds)).scalar_one() for site in SITES.values()}


#: The fixer frees what is stuck every hour: what stays so for two has no fixer.
RULES = [
    Rule(
        name="stuck_thumbnails", of="a table", measure=stuck_thumbnails, threshold=0, lasts=2 * HOUR,
        says="{value:.0f} builds of thumbnails are stuck, and nobody frees them",
    ),
]  # fmt: skip
