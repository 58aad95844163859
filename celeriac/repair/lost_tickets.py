"""Tickets that Redis lost."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from celeriac.dispatch.publish import Publisher
from celeriac.repair import ticket_samples
from celeriac.repair.batch import BATCH
from celeriac.settle import release

if TYPE_CHECKING:
    from celeriac.app import Celeriac


def lost_tickets(app: Celeriac) -> int:
    """Claimed tasks whose ticket is in no queue wait again. A ticket that merely queues is left alone.

    One in the memory of a worker that is busy is freed as well: whoever comes free first gets it, and the late ticket
    starts nothing. If Redis cannot be asked, nothing is known to be lost. What is compared here is kept for a while.
    """
    ticket_samples.sample(app)
    with app.database.statement() as connection:
        suspects = release.unstarted(connection, app.settings.ticket_grace)
    by_queue: defaultdict[str, list[str]] = defaultdict(list)
    for suspect in suspects:
        by_queue[suspect.queue].append(suspect.token)
    lost = [token for queue, tokens in by_queue.items() for token in _not_queued(app.publisher, queue, tokens)]
    freed = 0
    for some in (lost[i : i + BATCH] for i in range(0, len(lost), BATCH)):
        with app.database.transaction() as connection:
            freed += len(
                release.release(
                    connection, some, started=False, kind="ticket_lost", why="its ticket was lost",
                    by=app.process_name, loss=False,
                )
            )  # fmt: skip
    return freed


def _not_queued(publisher: Publisher, queue: str, tokens: list[str]) -> list[str]:
    queued = publisher.queued(queue, tokens)
    return [] if queued is None else [token for token in tokens if token not in queued]
