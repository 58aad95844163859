"""Sweeps: periodic repairs, each in bounded batches until one is short. Their cost depends on what they repair."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from celeriac.alerts.review import review as review_alerts
from celeriac.repair import (
    aging,
    hand_over,
    history,
    lost_tickets,
    minutes,
    promote,
    prune,
    rescue,
    resume,
    review,
    ring,
)
from celeriac.store.patience import recurring

if TYPE_CHECKING:
    from celeriac.app import Celeriac
    from celeriac.repair.app import RepairApp

    class _App(Celeriac, RepairApp): ...  # so that mypy compares them: see the end of `celeriac/app.py`


logger = logging.getLogger(__name__)


SWEEPS: dict[str, Callable[[Celeriac], int]] = {
    "rescue": rescue.rescue,
    "lost_tickets": lost_tickets.lost_tickets,
    "hand_over": hand_over.hand_over,
    "history": history.add_days,
    "prune": prune.prune_finished,
    "ring": ring.turn,
    "promote": promote.promote_due,
    "resume": resume.resume_due,
    "aging": aging.raise_old,
    "review": review.review_queues,
    "alerts": review_alerts,
    "minutes": minutes.count_minutes,
}


def sweep(app: Celeriac, name: str) -> int:
    """Run one sweep to its end and return how many rows it repaired or removed."""
    with recurring():
        done = SWEEPS[name](app)
    if done:
        logger.info("Sweep %s: %d", name, done)
    return done
