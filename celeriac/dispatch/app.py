"""The part of the app that dispatching needs."""

from __future__ import annotations

from typing import Any, Protocol


class DispatchApp(Protocol):
    """Celery's side of the app: its messages, and its connections to Redis."""

    @property
    def amqp(self) -> Any: ...
    def connection_for_write(self, *, transport_options: Any) -> Any: ...
