"""What the application watches besides the engine's rules: see docs/observability.md."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, text

from celeriac.alerts import Rule
from tasks.stale_thumbnails import HOUR, count, stale_after
from tasks.thumbnails import SITES


def stuck_thumbnails(connection: Connection) -> Mapping[str, float]:
    """How many builds of each table are stuck."""
    seconds = stale_after()
    return {site.__tablename__: connection.execute(count(site, seconds)).scalar_one() for site in SITES.values()}


#: A check of the stale fixer finds up to so many where all is well. A restart leaves more, once.
USUALLY_STUCK = 10

# Of each table, the least that any of its last three checks found.
AGAIN_AND_AGAIN = text("""
SELECT sites, min(found) FROM (
    SELECT sites, found, row_number() OVER (PARTITION BY sites ORDER BY at DESC, id DESC) AS nth
    FROM thumbnail_checks WHERE at > statement_timestamp() - interval '1 day'
) AS checks
WHERE nth <= 3 GROUP BY sites HAVING count(*) = 3
""")


def keep_getting_stuck(connection: Connection) -> Mapping[str, float]:
    """How many builds of each table got stuck, check after check."""
    return {str(table): float(found) for table, found in connection.execute(AGAIN_AND_AGAIN)}


#: The fixer frees what is stuck every hour: what stays so for two has no fixer.
RULES = [
    Rule(
        name="stuck_thumbnails", of="a table", measure=stuck_thumbnails, threshold=0, lasts=2 * HOUR,
        says="{value:.0f} builds of thumbnails are stuck, and nobody frees them",
    ),
    Rule(
        name="thumbnails_keep_getting_stuck", of="a table", measure=keep_getting_stuck, threshold=USUALLY_STUCK,
        says="each of the last three checks found {value:.0f} builds stuck or more, over {threshold:g}",
    ),
]  # fmt: skip
