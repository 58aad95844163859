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
REPAIR = "celeriac.repair.vital:repair"


class Repairs(threading.Thread):
    """One look every `sweep_interval`."""

    def __init__(self, app: Celeriac) -> None:
        super().__init__(name="celeriac-repairs", daemon=True)
        self.app = app

    def run(self) -> None:
        while True:
            time.sleep(self.app.settings.sweep_interval)
            self.look()

    def look(self) -> None:
        try:
            symbol_by_name(REPAIR)(self.app)
        except Exception as error:
            if is_gone(error):
                logger.warning("Postgres is away; the vital repairs are tried again")
            else:
                logger.exception("A vital repair failed; it is tried again")
