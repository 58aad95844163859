"""The repairs without which tasks stay stuck: workers run them too, where no beat does.

Single-flight: of all workers one runs a sweep that is due, and none while a beat's schedule of it keeps its time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from celeriac.repair import SWEEPS

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

VITAL = ("rescue", "lost_tickets", "hand_over", "promote", "ring", "history")

#: A beat is late when it missed this many intervals.
MISSED = 3

# INVARIANT: whoever writes the row has the sweep, until another interval is over.
TAKE = text("""
INSERT INTO celeriac.repairs (name, at)
SELECT wanted.name, clock_timestamp() FROM unnest(CAST(:names AS text[])) AS wanted (name)
WHERE NOT EXISTS (
    SELECT FROM celeriac.scheduled_jobs s WHERE s.kind = 'sweep' AND s.target = wanted.name
        AND s.last_run_at > statement_timestamp() - :missed * interval '1 second')
ORDER BY wanted.name
ON CONFLICT (name) DO UPDATE SET at = excluded.at
WHERE repairs.at < excluded.at - :every * interval '1 second'
RETURNING name
""")


def due(connection: Connection, every: float) -> list[str]:
    """The vital sweeps that are this process's to run now, each once every so many seconds."""
    wanted = {"names": list(VITAL), "every": every, "missed": MISSED * every}
    return list(connection.execute(TAKE, wanted).scalars())


def repair(app: Celeriac) -> int:
    """Runs what is due; how many tasks were repaired."""
    with app.database.statement() as connection:
        names = due(connection, app.settings.sweep_interval)
    repaired = sum(SWEEPS[name](app) for name in names)
    if repaired:
        logger.warning("No beat ran its sweeps: this worker repaired %d task(s)", repaired)
    return repaired
