"""Celery's consumer, for a Redis that goes away or refuses: it waits for as long as that takes, and says so once."""

from __future__ import annotations

import logging
import math
import time
import warnings
from itertools import count
from typing import Any, NoReturn

from celery.events.dispatcher import EventDispatcher
from celery.exceptions import CPendingDeprecationWarning
from celery.worker.consumer import Consumer as StockConsumer
from kombu.exceptions import OperationalError

from celeriac.dispatch.publish import SHORT_FUSE, in_brief
from celeriac.run.places import places
from celeriac.worker.alone import Alone
from celeriac.worker.pulse import PULSE

logger = logging.getLogger(__name__)

#: Until Redis is tried again (seconds): at first, and at most.
SOON, AT_LAST = 0.5, 5.0

#: How long (seconds) the loop of a worker waits for Redis' answer, unless `broker_transport_options` says: nothing else
#: goes round meanwhile, work by looks in SQL least of all.
IN_LOOP = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0}

#: Between two connections that end one right after the other (seconds).
REST = 1.0


class Consumer(StockConsumer):
    """What Redis refuses to each connection anew (a command it may not give) costs a try a second."""

    first_connection_attempt: bool
    ended = -math.inf

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.alone = Alone(self)

    def connection_for_read(self, heartbeat: Any = None) -> Any:
        conn = self.app.connection_for_read(heartbeat=heartbeat)
        said = self.app.conf.broker_transport_options or {}
        conn.transport_options = {**conn.transport_options, **{k: said.get(k, v) for k, v in IN_LOOP.items()}}
        return self.ensure_connected(conn)

    def connection_for_write(self, url: Any = None, heartbeat: Any = None) -> Any:
        """For events. Redis that answers nobody would hold up the consumer's own loop."""
        conn = self.app.connection_for_write(url=url, heartbeat=heartbeat)
        conn.transport_options = {**conn.transport_options, **SHORT_FUSE}
        return self.ensure_connected(conn)

    def ensure_connected(self, conn: Any) -> Any:
        """Each reason why it cannot is told once. Work goes on meanwhile. Without a Redis it ends with its worker."""
        if not self.app.settings.has_redis:
            self._work_without()
        if not self.app.conf[self._get_connection_retry_type(self.first_connection_attempt)]:
            return super().ensure_connected(conn)
        last_reason = ""
        most = self.app.conf.broker_connection_max_retries
        for tried in count(1):
            try:
                conn.ensure_connection(max_retries=0, reraise_as_library_errors=False)
                break
            except conn.recoverable_connection_errors as error:
                if most and tried > most:
                    raise
                if (why := in_brief(error)) != last_reason:
                    logger.warning("Waiting for Redis at %s: %s", conn.as_uri(), why)
                last_reason = why
            places.alone = True
            try:
                self.alone.work_for(min(tried * SOON, AT_LAST))
            finally:
                places.alone = False
        self.first_connection_attempt = False
        return conn

    def _work_without(self) -> NoReturn:
        """Until the worker is to end, which raises WorkerShutdown."""
        self.on_ready()
        places.alone = PULSE.consuming = True
        try:
            while True:
                self.alone.work_for(AT_LAST)
        finally:
            places.alone = PULSE.consuming = False

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        with warnings.catch_warnings(action="ignore", category=CPendingDeprecationWarning):
            super().on_connection_error_after_connected(_in_words(exc))
        if time.monotonic() - self.ended < 2 * REST:
            time.sleep(REST)
        self.ended = time.monotonic()


class Teller(EventDispatcher):
    """Tells of this worker. What Redis does not take is told once it is back, but for heartbeats.

    Celery's own tries each again and again, in the consumer's loop.
    """

    def send(self, type: str, *args: Any, **fields: Any) -> Any:  # noqa: A002 - Celery's name
        if type == "worker-heartbeat" and not self.app.publisher.is_open:
            return None
        return super().send(type, *args, **{**fields, "retry": False})


def _in_words(error: Exception) -> Exception:
    """Celery logs the `repr`, which for an error of redis-py does not say what Redis said."""
    brief = OperationalError(in_brief(error))
    brief.__cause__ = error
    return brief
