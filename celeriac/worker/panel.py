"""Remote control that tells of rows and acts on them, whoever sends the command: Flower, `celery control`, another app.

This worker's mailbox alone gets these commands; Celery's registry stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import bootsteps
from celery.worker import control as stock
from celery.worker.consumer.control import Control

from celeriac.roles.rules import TICKET
from celeriac.worker import listeners

Command = Callable[..., Any]


class PanelStep(bootsteps.StartStopStep):
    """Exchanges the commands that are about tasks, before the mailbox is first read."""

    requires = ("celery.worker.consumer.control:Control",)

    def create(self, c: Any) -> None:
        for step in c.steps:
            if isinstance(step, Control):
                node = step.box.node
                node.handlers = {**node.handlers, **commands()}


def commands() -> dict[str, Command]:
    return {"enable_events": enable_events, "disable_events": disable_events, "registered": registered}


def registered(state: Any, *given: Any, **more: Any) -> list[str]:
    """What it can run; the ticket is no task of anybody's."""
    return [told for told in stock.registered(state, *given, **more) if told.split(" ")[0] != TICKET]


def enable_events(state: Any) -> Any:
    reply = stock.enable_events(state)
    listeners.heed(state.consumer)
    return reply


def disable_events(state: Any) -> Any:
    reply = stock.disable_events(state)
    listeners.heed(state.consumer)
    return reply
