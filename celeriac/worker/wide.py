"""Pools whose slots share a process: threads, greenlets, or one event loop. Each fills its slots by itself."""

from __future__ import annotations

import os
import time
from typing import Any

from celery.concurrency import thread
from celery.concurrency.base import BasePool

from celeriac.run import shared
from celeriac.run.flight import Ask, by_role
from celeriac.run.flights import Flights
from celeriac.run.places import places
from celeriac.run.seen import SEEN
from celeriac.worker.request import logger, ran


class Wide(BasePool):
    """A pool that takes tickets from Celery, and runs passes of its own, which need no Redis."""

    limit: int
    signal_safe = False
    body_can_be_buffer = True
    on_loop = False

    def on_start(self) -> None:
        self.flights = Flights(self.app, self.limit, self._served, ran, on_loop=self.on_loop)
        places.wake = self.flights.filler.wake
        SEEN.on_roles = self.flights.filler.woken.set
        shared.in_flight = self.flights.current
        self.flights.start()

    def _served(self) -> list[Any]:
        return list(self.app.roles.of_queues(set(self.app.amqp.queues.consume_from)))

    def on_stop(self) -> None:
        """Stop once all tasks have ended; the lifeline hands running ones back when the grace period is over."""
        self.flights.stop()
        places.wake, shared.in_flight = None, None

    def bring(self, request: Any) -> None:
        """Take a ticket, or a wake-up for a role."""
        role_name, ids, token = request.args
        began = time.monotonic()
        request.on_accepted(os.getpid(), began)

        def ended(done: dict[str, Any]) -> None:
            request.on_success((False, done, time.monotonic() - began))

        declared = self.app.roles.of_lane(role_name)
        if declared is None:
            logger.error("Got a ticket for role %r, which this worker's code does not declare", role_name)
            ended({"unknown_role": role_name})
        elif token:
            self.flights.filler.bring(Ask(declared.role, token, ids, ended))
        else:
            if not ids:
                self.app.publisher.take_up(role_name)
            self.flights.filler.wake(role_name)
            ended({"ran": 0})

    def grow(self, n: int = 1) -> None:
        """Handle `control pool_grow`."""
        self.limit += n
        self.flights.resize(self.limit)

    def shrink(self, n: int = 1) -> None:
        self.grow(-min(n, self.limit - 1))

    def _get_info(self) -> dict[str, Any]:
        flying = by_role(list(self.flights.flights.values()))
        return {**BasePool._get_info(self), "processes": [os.getpid()], "tasks": flying}


class TaskPool(Wide):
    """The pool `-P asyncio`: one event loop, `-c` tasks in flight."""

    on_loop = True


class Threads(Wide, thread.TaskPool):
    """The pool `-P threads`: a thread for each slot."""
