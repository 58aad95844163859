"""Replies to remote control that need Postgres: another thread queries it, so that a broadcast never blocks the hub."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from celery.worker.control import nok

from celeriac.store.failures import in_a_line, is_passing

logger = logging.getLogger(__name__)

#: How long (seconds) the hub waits for an answer.
PATIENCE = 0.5

#: How many queries may wait for Postgres; more are refused.
MOST = 5

SILENT = f"Postgres has not answered within {PATIENCE:g} s"
SILENT_YET = f"{SILENT}; it is asked nevertheless"


class Desk:
    """Runs queries for the hub's thread, each in a thread of its own."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(MOST)

    def ask(self, question: Callable[[], Any], silence: str = SILENT) -> Any:
        """Return the answer, or Celery's error reply. A query that takes longer is completed nevertheless."""
        if not self._free.acquire(blocking=False):
            logger.warning("A remote control command was refused: Postgres has not answered the last %d", MOST)
            return nok(SILENT)
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(
            target=lambda: answer.put(self._answered(question)), name="celeriac-desk", daemon=True
        ).start()  # fmt: skip
        try:
            return answer.get(timeout=PATIENCE)
        except queue.Empty:
            return nok(silence)

    def _answered(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except Exception as error:
            logger.warning("A remote control command failed: %s", in_a_line(error), exc_info=not is_passing(error))
            return nok(in_a_line(error))
        finally:
            self._free.release()
