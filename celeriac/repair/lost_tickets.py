"""Tickets that Redis lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celeriac.repair.batch import BATCH
from celeriac.settle import release

if TYPE_CHECKING:
    from celeriac.app import Celeriac


def lost_tickets(app: Celeriac) -> int:
    """Claimed tasks whose ticket is in no queue wait again. A ticket that merely queues is left alone.

    One in the memory of a worker that is busy is freed as well: whoever comes free first gets it, and the late ticket
    starts nothing. If Redis cannot be asked, nothing is known to be lost.
    """
    with app.database.statement() as connection:
        suspects = release.unstarted(connection, app.settings.ticket_grace)
    queued = {queue: app.publisher.queued(queue) for queue in {s.queue for s in suspects}}
    lost = [s for s in suspects if (ids := queued[s.queue]) is not None and s.id not in ids]
    freed = 0
    for some in (lost[i : i + BATCH] for i in range(0, len(lost), BATCH)):
        with app.database.transaction() as connection:
            freed += len(
                release.release(
                    connection,
                    some,
                    status="claimed",
                    kind="ticket_lost",
                    why="its ticket was lost",
                    by=app.process_name,
                    loss=False,
                )
            )
    return freed
