"""The life of a task, as tests hold the engine to it."""

from __future__ import annotations

from typing import Final

from celeriac.store.states import CANCELLED, CLAIMED, COMPLETED, FAILED, FINISHED, PENDING, RUNNING

#: Where a status may lead; what a row does otherwise is a fault.
NEXT: Final = {
    PENDING: (PENDING, CLAIMED, CANCELLED),
    CLAIMED: (RUNNING, PENDING, CANCELLED),
    RUNNING: (RUNNING, COMPLETED, FAILED, CANCELLED, PENDING),
    COMPLETED: (),
    FAILED: (PENDING,),
    CANCELLED: (PENDING,),
}

#: A row may also go: a running one whose success is not kept, a finished one that is pruned.
MAY_GO: Final = (RUNNING, *FINISHED)
