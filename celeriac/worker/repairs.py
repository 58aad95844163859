"""A thread of the parent: the vital repairs, where no beat runs them."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from kombu.utils.imports import symbol_by_name

from celeriac.store.failures import is_gone

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

#: By name: the sweeps stand above the worker, and know it.
REPAIR, TURN = "celeriac.repair.vital:repair", "celeriac.repair.ring:turn"

#: How often (seconds) the ring is looked at. Under an old transaction thousands of entries die in a second, and each
#: claim walks over them until the ring turns.
LOOK_AT_RING_EVERY = 1.0


class Repairs(threading.Thread):
    """The vital repairs every `sweep_interval`, the ring each second."""

    def __init__(self, app: Celeriac) -> None:
        super().__init__(name="celeriac-repairs", daemon=True)
        self.app = app

    def run(self) -> None:
        every = self.app.settings.sweep_interval
        due = time.monotonic() + every
        while True:
            time.sleep(min(every, LOOK_AT_RING_EVERY))
            self.look(TURN)
            if time.monotonic() >= due:
                due = time.monotonic() + every
                self.look(REPAIR)

    def look(self, repair: str) -> None:
        try:
            symbol_by_name(repair)(self.app)
        except Exception as error:
            if is_gone(error):
                logger.warning("Postgres is away; the vital repairs are tried again")
            else:
                logger.exception("A vital repair failed; it is tried again")
