"""Celery's consumer, for a Redis that goes away or refuses: it waits for as long as that takes, and says so once."""

from __future__ import annotations

import logging
import math
import time
import warnings
from typing import Any

from celery.exceptions import CPendingDeprecationWarning
from celery.worker.consumer import Consumer as StockConsumer
from celery.worker.state import maybe_shutdown
from kombu.exceptions import OperationalError

from celeriac.dispatch.publish import in_brief

logger = logging.getLogger(__name__)

#: Until Redis is tried again (seconds): at first, and at most.
SOON, AT_LAST = 0.5, 5.0

#: Between two connections that end one right after the other (seconds).
REST = 1.0


class Consumer(StockConsumer):
    """What Redis refuses to each connection anew (a command it may not give) costs a try a second."""

    first_connection_attempt: bool
    ended = -math.inf

    def ensure_connected(self, conn: Any) -> Any:
        """Each reason why it cannot is told once."""
        if not self.app.conf[self._get_connection_retry_type(self.first_connection_attempt)]:
            return super().ensure_connected(conn)
        last_reason = ""

        def tell(error: Exception, _: float) -> None:
            nonlocal last_reason
            if (why := in_brief(error)) != last_reason:
                logger.warning("Waiting for Redis at %s: %s", conn.as_uri(), why)
            last_reason = why

        conn.ensure_connection(
            tell, self.app.conf.broker_connection_max_retries, callback=maybe_shutdown,
            interval_start=SOON, interval_step=SOON, interval_max=AT_LAST,
        )  # fmt: skip
        self.first_connection_attempt = False
        return conn

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        with warnings.catch_warnings(action="ignore", category=CPendingDeprecationWarning):
            super().on_connection_error_after_connected(_in_words(exc))
        if time.monotonic() - self.ended < 2 * REST:
            time.sleep(REST)
        self.ended = time.monotonic()


def _in_words(error: Exception) -> Exception:
    """Celery logs the `repr`, which for an error of redis-py does not say what Redis said."""
    brief = OperationalError(in_brief(error))
    brief.__cause__ = error
    return brief
