"""Vital repairs, without which tasks stay stuck: workers run them if no beat does, and a review as they start.

Single-flight: one of all workers runs a sweep that is due, and none does while a beat's schedule for it is in time. The
ring, which wears out within seconds, has its own turns (`ring.turn_by_worker`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from celeriac.repair import sweep
from celeriac.store.failures import is_gone, log_error

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

VITAL = ("rescue", "lost_tickets", "hand_over", "promote", "resume", "history")

#: The sweep that a process runs as it starts if there is no master, as the Queue Master's document requires.
AT_START = ("review",)

#: A schedule overdue by so many intervals has no beat.
MISSED = 3

# INVARIANT: the worker that writes the row has the sweep, until another interval is over. A sweep that an operator
# switched off stays off, except the one at a process's start, which is for systems without a master.
TAKE = text("""
INSERT INTO celeriac.repairs (name, at)
SELECT wanted.name, clock_timestamp() FROM unnest(CAST(:names AS text[])) AS wanted (name)
WHERE NOT EXISTS (
    SELECT FROM celeriac.scheduled_jobs s WHERE s.kind = 'sweep' AND s.target = wanted.name
        AND CASE WHEN s.enabled THEN s.next_run_at >= statement_timestamp() - :missed * interval '1 second'
            ELSE NOT :if_off END)
ORDER BY wanted.name
ON CONFLICT (name) DO UPDATE SET at = excluded.at
WHERE repairs.at < excluded.at - :every * interval '1 second'
RETURNING name
""")


def due(connection: Connection, every: float, names: Sequence[str] = VITAL, *, if_off: bool = False) -> list[str]:
    """Claim the sweeps that this process has to run now, each once every so many seconds, and return them."""
    wanted = {"names": list(names), "every": every, "missed": MISSED * every, "if_off": if_off}
    return list(connection.execute(TAKE, wanted).scalars())


def repair(app: Celeriac) -> int:
    """Run the vital sweeps that are due; return how many rows were repaired."""
    return _run(app, VITAL)


def at_start(app: Celeriac) -> int:
    """Run the sweeps of a process's start; return how many rows were repaired."""
    return _run(app, AT_START, if_off=True)


def _run(app: Celeriac, names: Sequence[str], *, if_off: bool = False) -> int:
    with app.database.statement() as connection:
        mine = due(connection, app.settings.sweep_interval, names, if_off=if_off)
    return sum(_sweep(app, name) for name in mine)


def _sweep(app: Celeriac, name: str) -> int:
    """Run one sweep; its failure does not keep others from running. Raises errors that mean Postgres is away."""
    try:
        return sweep(app, name)
    except Exception as error:
        if is_gone(error):
            raise
        log_error(logger, error, "The sweep %s failed; it is tried again in %g s", name, app.settings.sweep_interval)
        return 0
