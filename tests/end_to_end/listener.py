"""What Celery's own readers of events make of them: its `State`, which Flower's is built on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery
from celery.events.state import State

from tests.processes import until


class Listener:
    """A stock app that hears everything from its start on."""

    def __init__(self, redis_url: str) -> None:
        self.app = Celery("listener", broker=redis_url, set_as_current=False)
        self.state = State()
        self.heard: list[dict[str, Any]] = []
        self.listening = threading.Event()

    def run(self) -> None:
        with self.app.connection_for_read() as connection:
            self.receiver = self.app.events.Receiver(connection, handlers={"*": self.hear})
            self.receiver.on_consume_ready = lambda *_, **__: self.listening.set()
            for _ in self.receiver.consume(limit=None, timeout=None, safety_interval=0.1):
                pass

    def hear(self, event: dict[str, Any]) -> None:
        self.state.event(dict(event))
        self.heard.append(event)

    def kinds(self, task_id: str) -> list[str]:
        return [e["type"] for e in self.heard if e.get("uuid") == task_id]

    def states(self) -> dict[str, str]:
        return {task_id: task.state for task_id, task in list(self.state.tasks.items())}

    def until(self, task_id: str, state: str) -> Any:
        until(lambda: self.states().get(task_id) == state, f"{task_id} to be told {state}", 20)
        return self.state.tasks[task_id]


@contextmanager
def listening(redis_url: str) -> Iterator[Listener]:
    listener = Listener(redis_url)
    thread = threading.Thread(target=listener.run, daemon=True)
    thread.start()
    assert listener.listening.wait(10)
    yield listener
    listener.receiver.should_stop = True
    thread.join(10)
