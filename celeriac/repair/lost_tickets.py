"""Tickets that Redis has lost."""

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
    """Release claimed tasks whose ticket is in no queue; tickets that are still queued are left alone.

    A ticket in the memory of a busy worker is released as well: the next free worker gets the tasks, and the late
    ticket starts nothing. If Redis does not answer, no ticket counts as lost. The comparison is kept as a sample.
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
