"""What the hub's thread wants of Postgres, asked in another: a broadcast may not keep a worker from its work."""

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

#: Questions that Postgres has not answered; more are refused.
MOST = 5

SILENT = f"Postgres has not answered within {PATIENCE:g} s"
SILENT_YET = f"{SILENT}; it is asked nevertheless"


class Desk:
    """Takes questions one by one, from the hub's thread."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(MOST)

    def ask(self, question: Callable[[], Any], silence: str = SILENT) -> Any:
        """The answer, or Celery's error reply. What takes longer is done nevertheless."""
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
