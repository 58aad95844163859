"""Work without Redis: while it is away or refuses messages, the worker's processes poll SQL.

The parent sends them wake-ups in the form of messages from Celery's consumer. Threads, greenlets and coroutines do not
need this: they fill their slots by themselves.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from celery import bootsteps
from celery.worker.state import maybe_shutdown, task_reserved
from kombu.message import Message
from kombu.utils.uuid import uuid

from celeriac.roles.rules import TICKET
from celeriac.run import shared
from celeriac.run.places import places
from celeriac.run.seen import PASSED_ON, SEEN
from celeriac.worker.pulse import PULSE
from celeriac.worker.request import TicketRequest

#: Maximum seconds of one round of polls if tasks run in the consumer's own thread.
ROUND = 1.0

#: Seconds between two checks of whether the worker should end, while its consumer waits for Redis.
OFTEN = 0.05


class Asked(TicketRequest):
    """A poll of a role, requested by the parent, not by a message from Redis."""

    alone: Alone
    role: str

    def on_success(self, failed__retval__runtime: Any, **kwargs: Any) -> Any:
        failed, done, _ = failed__retval__runtime
        ran = 0 if failed or not done else int(done.get("ran", 0))
        answer = super().on_success(failed__retval__runtime, **kwargs)
        self.alone.over(self, ran)
        return answer

    def on_failure(self, *args: Any, **kwargs: Any) -> Any:
        answer = super().on_failure(*args, **kwargs)
        self.alone.over(self, 0)
        return answer


class Alone:
    """Makes processes poll, from the consumer's thread. Two more polls follow one that found work."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self.app = consumer.app
        self.waiting: deque[str] = deque()
        self.under_way: set[Asked] = set()
        self.is_asking = False
        self.next_look = 0.0

    def is_needed(self) -> bool:
        return (places.alone or not self.app.publisher.is_open) and not shared.closed()

    def look(self) -> None:
        """Request a poll of each role in which work was seen; of all roles served, if nobody has checked lately."""
        with_work, now = SEEN.take(), time.monotonic()
        if not self.is_needed():
            return
        if (shared.alone() or not SEEN.is_fresh()) and now >= self.next_look:  # perhaps nobody reads tickets
            self.next_look = now + self.app.settings.poll_interval
            with_work |= {role.lane for role in self.app.roles.of_queues(set(self.app.amqp.queues.consume_from))}
        self.waiting.extend(sorted(with_work.difference(self.waiting)))
        self.ask()

    def over(self, look: Asked, ran: int) -> None:
        self.under_way.discard(look)
        if ran and self.is_needed():
            self.waiting.extend([look.role] * min(2, self._slots() - len(self.under_way)))
        self.ask()

    def ask(self) -> None:
        """Start as many polls as there are free slots. In `solo` each runs, and ends, within this call."""
        if self.is_asking:
            return
        self.is_asking, until = True, time.monotonic() + ROUND
        try:
            while self.waiting and len(self.under_way) < self._slots() and time.monotonic() < until:
                self._ask(self.waiting.popleft())
        finally:
            self.is_asking = False

    def forget(self) -> None:
        """Forget polls that have not begun: a consumer that loses its connection drops them unreported."""
        self.under_way.clear()

    def _slots(self) -> int:
        return int(self.consumer.pool.num_processes)

    def _ask(self, role: str) -> None:
        name = f"{role} look"
        headers = {
            "id": uuid(), "task": TICKET, "shadow": name, "ignore_result": True, "argsrepr": name, "kwargsrepr": "",
            "lang": "py", "root_id": None, "parent_id": None,
        }  # fmt: skip
        body: tuple[Any, ...] = ([role, [], ""], {}, {})
        message = Message(body=body, headers=headers, delivery_info={}, properties={})
        request = Asked(
            message, app=self.app, hostname=self.consumer.hostname, task=self.app.tasks[TICKET], headers=headers,
            body=body, decoded=True, eventer=self.consumer.event_dispatcher,
        )  # fmt: skip
        request.alone, request.role = self, role
        self.under_way.add(request)
        task_reserved(request)
        self.consumer.on_task_request(request)

    def work_for(self, seconds: float) -> None:
        """Let processes work while the consumer has no connection, and therefore no loop of its own."""
        hub, until = self.consumer.hub, time.monotonic() + seconds
        if hub is None or fills_itself(self.consumer.pool):
            while time.monotonic() < until:
                PULSE.stamp()
                maybe_shutdown()
                time.sleep(OFTEN)
            return
        timers = set(map(_entry, hub.timer.queue))
        self.consumer.controller.register_with_event_loop(hub)
        registered = set(map(_entry, hub.timer.queue)) - timers
        wake = hub.timer.call_repeatedly(OFTEN, lambda: None)
        loop, next_look = hub.create_loop(), 0.0
        try:
            while (now := time.monotonic()) < until:
                PULSE.stamp()
                maybe_shutdown()
                if now >= next_look:
                    next_look = now + self.app.settings.poll_interval * PASSED_ON
                    self.look()
                next(loop)
        finally:
            for entry in (wake, *registered):
                entry.cancel()
            hub.reset()


def fills_itself(pool: Any) -> bool:
    return hasattr(pool, "bring")


def _entry(scheduled: Any) -> Any:
    """Return the timer's entry, to cancel it: entries that the pool registers would outlast the loop's reset."""
    return scheduled.entry


class AloneStep(bootsteps.StartStopStep):
    """Requests polls also while the consumer is connected: Redis may be full, refuse commands, or not answer."""

    requires = ("celery.worker.consumer.tasks:Tasks",)
    timer: Any = None

    def start(self, c: Any) -> None:
        if not fills_itself(c.pool):
            self.timer = c.timer.call_repeatedly(c.app.settings.poll_interval * PASSED_ON, c.alone.look)

    def stop(self, c: Any) -> None:
        if self.timer is not None:
            self.timer.cancel()
        c.alone.forget()
