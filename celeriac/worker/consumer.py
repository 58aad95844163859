"""Celery's consumer, for a Redis that goes away or refuses: it waits however long that takes, and logs it once."""

from __future__ import annotations

import logging
import math
import time
import warnings
from itertools import count
from typing import Any

from celery.events.dispatcher import EventDispatcher
from celery.exceptions import CPendingDeprecationWarning
from celery.worker.consumer import Consumer as StockConsumer
from celery.worker.consumer.mingle import Mingle
from kombu.exceptions import OperationalError

from celeriac.dispatch.asking import in_brief
from celeriac.dispatch.publish import SHORT_FUSE
from celeriac.run import shared
from celeriac.run.places import places
from celeriac.worker.alone import Alone
from celeriac.worker.pulse import PULSE

logger = logging.getLogger(__name__)

#: Seconds until the next attempt to reach Redis: at first, and at most.
SOON, AT_LAST = 0.5, 5.0

#: A connection that ends within so many seconds counts as broken by the network or by Redis.
STEADY = 10.0

#: Seconds that a worker's loop waits for Redis' answer, unless `broker_transport_options` sets that. Meanwhile the loop
#: does nothing else, such as requesting polls of SQL.
IN_LOOP = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0}


class Consumer(StockConsumer):
    """Celery's consumer. `broken`: how many connections in a row ended within `STEADY`. `began`: when (monotonic) the
    last one was made.
    """

    class Blueprint(StockConsumer.Blueprint):
        """The consumer's steps, one of which is its loop."""

        def start(self, parent: Any) -> None:
            """Run the steps. An error of a broken connection that would end the worker is raised as OperationalError,
            after which the consumer connects again.
            """
            try:
                super().start(parent)
            except parent.connection_errors:
                raise
            except Exception as error:
                if not _is_of_connections(error):
                    raise
                logger.debug("The connection to Redis broke", exc_info=error)
                raise OperationalError(f"the connection broke: {error!r}") from error

    steps: list[Any]
    connection_errors: tuple[type[BaseException], ...]
    first_connection_attempt: bool
    began = -math.inf
    broken = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Kombu turns connection errors into this one, which would end Celery's worker.
        self.connection_errors = (*self.connection_errors, OperationalError)
        self.alone = Alone(self)

    def connect(self) -> Any:
        """Connect, after a pause if connections keep breaking: it grows with their number, and work goes on in it."""
        if self.broken:
            self.work_alone(min(2 ** min(self.broken, 10) * SOON, AT_LAST))
        connection = super().connect()
        self.began = time.monotonic()
        return connection

    def work_alone(self, seconds: float) -> None:
        places.alone = True
        shared.be_alone()
        try:
            self.alone.work_for(seconds)
        finally:
            places.alone = False
            shared.be_alone(on=False)

    def connection_for_read(self, heartbeat: Any = None) -> Any:
        said = self.app.conf.broker_transport_options or {}
        patience = {k: said.get(k, v) for k, v in IN_LOOP.items()}
        return self.ensure_connected(self.app.connection_for_read(heartbeat=heartbeat, transport_options=patience))

    def connection_for_write(self, url: Any = None, heartbeat: Any = None) -> Any:
        """Return a connection for events, with short timeouts: a hung Redis would block the consumer's loop."""
        conn = self.app.connection_for_write(url=url, heartbeat=heartbeat)
        conn.transport_options = {**conn.transport_options, **SHORT_FUSE}
        return self.ensure_connected(conn)

    def ensure_connected(self, conn: Any) -> Any:
        """Connect, however long it takes, and log each reason once; work goes on meanwhile. If no Redis is configured,
        work until the worker ends.
        """
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
            self.work_alone(min(tried * SOON, AT_LAST))
        self.first_connection_attempt = False
        return conn

    def _work_without(self) -> None:
        """Work until the worker has to end; then raise WorkerShutdown."""
        self.on_ready()
        places.alone = PULSE.consuming = True
        try:
            self.alone.work_for(math.inf)
        finally:
            places.alone = PULSE.consuming = False

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        with warnings.catch_warnings(action="ignore", category=CPendingDeprecationWarning):
            super().on_connection_error_after_connected(_in_words(exc))
        # Mingle waits a second for other workers' revocations, which are rows here: the first connection's is enough.
        self.steps = [step for step in self.steps if not isinstance(step, Mingle)]
        lasted = time.monotonic() - self.began
        self.broken = self.broken + 1 if lasted < STEADY else 0


class Teller(EventDispatcher):
    """Sends this worker's own events. Events that Redis refuses are sent once it is back, except heartbeats.

    Celery's own dispatcher would retry each one in the consumer's loop.
    """

    def send(self, type: str, *args: Any, **fields: Any) -> Any:  # noqa: A002 - Celery's name
        if type == "worker-heartbeat" and not self.app.publisher.is_open:
            return None
        return super().send(type, *args, **{**fields, "retry": False})


def _is_of_connections(error: BaseException) -> bool:
    """Return whether kombu or redis-py raised the error: they do if a broken connection's objects are closed."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    name = "" if frame is None else str(frame.tb_frame.f_globals.get("__name__"))
    return name.partition(".")[0] in ("kombu", "redis")


def _in_words(error: Exception) -> Exception:
    """Return an error whose `repr`, which Celery logs, has Redis' own message; redis-py's has not."""
    brief = OperationalError(in_brief(error))
    brief.__cause__ = error
    return brief
