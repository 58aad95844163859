"""The worker's memory and CPU governor: while either is short, nothing new begins here; running tasks go on.

A thread of the parent measures and decides. It sets flags that the children share; the gate keeps the consumer from
taking more from Redis. If memory stays short, idle processes that have run tasks end, and the pool starts others: this
frees the memory they had kept.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from celery import bootsteps

from celeriac import logged
from celeriac.run import shared
from celeriac.settings import Settings
from celeriac.store.failures import log_error
from celeriac.worker.limits import BackOff, BackOffLimits, announcement, govern
from celeriac.worker.memory import memory
from celeriac.worker.resources import Meter, Usage

logger = logging.getLogger(__name__)


class Governor(threading.Thread):
    """Checks every `poll_interval` until `ending`. `on_change` is called when a back-off begins or ends."""

    def __init__(self, settings: Settings, on_change: Callable[[], None], ending: threading.Event) -> None:
        super().__init__(name="celeriac-governor", daemon=True)
        self.every = settings.poll_interval
        self.limits = BackOffLimits(settings.memory_backoff, settings.cpu_backoff, settings.backoff_duration)
        self.meter = Meter(memory(settings.memory_limit_mb), settings.backoff_duration)
        self.on_change = on_change
        self.ending = ending
        self.usage = Usage()
        self.back_off = BackOff()
        self.lacking: str | None = None
        self.has_logged_drain = False
        self._lock = threading.Lock()

    def run(self) -> None:
        self.look()
        while not self.ending.wait(self.every):
            self.look()

    def look(self) -> None:
        try:
            self.check()
        except Exception as error:
            log_error(logger, error, "The governor could not check; it checks again in %g s", self.every)

    def check(self) -> None:
        self.usage = self.meter.read()
        with self._changing():
            use = self.usage
            self.back_off = govern(self.back_off, use.memory, use.cpu, self.limits, time.monotonic())
            shared.replace_idle(self.back_off.stuck)
        if shared.draining() and not self.has_logged_drain:  # a signal handler, which begins the drain, may not log
            self.has_logged_drain = True
            extra = logged.of("worker.draining", worker=shared.worker_id())
            logger.warning("[TaskWorker] %s drains: it finishes what it has", shared.worker_id(), extra=extra)

    def lack(self, reason: str | None) -> None:
        """Back off for this reason, which another thread checks, until it calls this with None."""
        with self._changing():
            self.lacking = reason

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Change one of the reasons, then set and announce the effect of both, before another thread changes one."""
        with self._lock:
            before = self.reason()
            yield
            after = self.reason()
            shared.back_off(after is not None)
            self._announce(before, after)

    def _announce(self, before: str | None, after: str | None) -> None:
        if line := announcement(shared.worker_id(), before, after):
            event = "worker.resumed" if after is None else "worker.backing_off"
            extra = logged.of(event, worker=shared.worker_id(), reason=after)
            logger.warning(line, extra=extra)
            self.on_change()

    def reason(self) -> str | None:
        return ", ".join(filter(None, (self.back_off.reason, self.lacking))) or None

    def resources(self) -> dict[str, Any]:
        """Return the figures for the heartbeat."""
        reason = self.reason()
        fields = {"is_backing_off": reason is not None, "backoff_reason": reason,
            "is_short_of_memory": self.back_off.stuck}  # fmt: skip
        return self.usage.described() | fields


class GateStep(bootsteps.StartStopStep):
    """Closes the consumer's gate during a back-off. Celery starts it with each connection, which has a new channel."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, c: Any) -> None:
        gate(c.task_consumer.channel)


def gate(channel: Any) -> None:
    """Stop the channel from consuming during a back-off. An answer under way is still read, and its ticket handed back:
    otherwise it would be stuck in the socket.
    """
    open_otherwise = channel.qos.can_consume

    def can_consume() -> bool:
        return bool(open_otherwise() and (not shared.backing_off() or getattr(channel, "_in_poll", None)))

    channel.qos.can_consume = can_consume
