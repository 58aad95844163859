"""A flag that the parent sets for the children: whether somebody listens to Celery's events of tasks."""

from __future__ import annotations

from typing import Any

from celery import bootsteps

from celeriac.run import shared


class ListenersStep(bootsteps.StartStopStep):
    """Sets the flag as each connection starts, by `-E` or what remote control has set since."""

    requires = ("celery.worker.consumer.events:Events",)

    def start(self, c: Any) -> None:
        heed(c)


def heed(consumer: Any) -> None:
    """Set the flag; call it after whatever enables or disables events."""
    shared.tell(wanted(getattr(consumer, "event_dispatcher", None)))


def wanted(dispatcher: Any) -> bool:
    """Return whether Celery's own dispatcher would send events of tasks. No groups: all of them."""
    return bool(dispatcher and dispatcher.enabled and (not dispatcher.groups or "task" in dispatcher.groups))
