"""The repairs without which tasks stay stuck: workers run them too, where no beat does.

Single-flight: of all workers one runs a sweep that is due, and none while a beat's schedule of it keeps its time. The
ring, which wears out within seconds, has its own turns (`ring.turn_by_worker`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from celeriac.repair import sweep
from celeriac.store.failures import is_gone

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

VITAL = ("rescue", "lost_tickets", "hand_over", "promote", "history")

#: A schedule that is overdue by so many intervals has no beat.
MISSED = 3

# INVARIANT: whoever writes the row has the sweep, until another interval is over. What an operator switched off stays
# off.
TAKE = text("""
INSERT INTO celeriac.repairs (name, at)
SELECT wanted.name, clock_timestamp() FROM unnest(CAST(:names AS text[])) AS wanted (name)
WHERE NOT EXISTS (
    SELECT FROM celeriac.scheduled_jobs s WHERE s.kind = 'sweep' AND s.target = wanted.name
        AND NOT (s.enabled AND s.next_run_at < statement_timestamp() - :missed * interval '1 second'))
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
    """Runs what is due; how many rows were repaired."""
    with app.database.statement() as connection:
        names = due(connection, app.settings.sweep_interval)
    return sum(_sweep(app, name) for name in names)


def _sweep(app: Celeriac, name: str) -> int:
    """One that fails keeps no other from running. Raises what says that Postgres is away."""
    try:
        return sweep(app, name)
    except Exception as error:
        if is_gone(error):
            raise
        logger.exception("The sweep %s failed; it is tried again in %g s", name, app.settings.sweep_interval)
        return 0
