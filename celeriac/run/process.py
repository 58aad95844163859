"""The part of an app that serves the tasks running in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from celeriac.dispatch.passes import Dispatcher
from celeriac.dispatch.publish import Publisher
from celeriac.roles.role import Role
from celeriac.run.app import Execute
from celeriac.run.journal import BATCH, Event, Journal, message
from celeriac.run.limited import Limited
from celeriac.run.settler import Settler
from celeriac.run.tally import Tally
from celeriac.settings import Settings
from celeriac.settle.outcome import Started
from celeriac.store.connections import Database


class Process:
    """A base class of the app, which supplies what is declared under TYPE_CHECKING."""

    if TYPE_CHECKING:
        settings: Settings
        conf: Any

        @property
        def database(self) -> Database: ...
        @property
        def publisher(self) -> Publisher: ...
        @property
        def process_name(self) -> str: ...
        def kick(self, roles: Iterable[str]) -> None: ...

    @property
    def execute(self) -> Execute:
        """The function that executes each run; read once a ticket."""
        if self.settings.otel:
            from celeriac.run import tracing

            return tracing.executed
        from celeriac.run.execute import execute

        return execute

    def receive(self, role: Role, ask: Callable[[bool], Sequence[Started]]) -> Callable[[bool], Sequence[Started]]:
        """Return the function that starts a ticket's tasks, traced if OpenTelemetry is on."""
        if self.settings.otel:
            from celeriac.run import tracing

            return tracing.received(role, ask)
        return ask

    @property
    def settler(self) -> Settler:
        kind = Settler
        if self.settings.otel:
            from celeriac.run import tracing

            kind = tracing.TracedSettler
        return kind(self.database, self.process_name, self.kick)

    @property
    def dispatcher(self) -> Dispatcher:
        return self.dispatcher_on(self.database, self.process_name)

    def dispatcher_on(self, database: Database, by: str) -> Dispatcher:
        kind = Dispatcher
        if self.settings.otel:
            from celeriac.run import tracing

            kind = tracing.TracedDispatcher
        return kind(database, self.publisher, by)

    @cached_property
    def journal(self) -> Journal:
        """The journal of Celery's events that are not sent yet."""
        return Journal(self._broadcast, self.settings.events_per_second)

    def _broadcast(self, some: Sequence[Event]) -> bool:
        """Send events to their listeners; return whether Redis took them."""
        publisher, exchange = self.publisher, self.conf.event_exchange
        return publisher.is_open and publisher.broadcast(exchange, BATCH, message(some, exchange))

    @cached_property
    def limited(self) -> Limited:
        """The limits of roles that apply now."""
        return Limited(self.database)

    @cached_property
    def tally(self) -> Tally:
        """Counts of how tasks ended, to be written."""
        return Tally(self.database)
