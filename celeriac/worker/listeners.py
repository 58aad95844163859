"""Whether somebody listens to Celery's events of tasks: the parent knows, the children are told."""

from __future__ import annotations

from typing import Any

from celery import bootsteps

from celeriac.run import shared


class ListenersStep(bootsteps.StartStopStep):
    """As each connection starts: `-E`, or what remote control has said since."""

    requires = ("celery.worker.consumer.events:Events",)

    def start(self, c: Any) -> None:
        heed(c)


def heed(consumer: Any) -> None:
    """Call it after whatever enables or disables events."""
    shared.tell(wanted(getattr(consumer, "event_dispatcher", None)))


def wanted(dispatcher: Any) -> bool:
    """Whether Celery's own dispatcher would send events of tasks. No groups: all of them."""
    return bool(dispatcher and dispatcher.enabled and (not dispatcher.groups or "task" in dispatcher.groups))
