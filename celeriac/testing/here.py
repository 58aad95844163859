"""Publishing in tests: tickets stay in the test's process and no wake-ups are sent, so tests need no Redis."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from celery import current_app

from celeriac.dispatch.publish import Publisher, Ticket
from celeriac.errors import ConfigurationError
from celeriac.seam.enqueuer import Enqueuer
from celeriac.settle import release
from celeriac.store.connections import Database

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: Held by the one thread that runs tasks: it replaces parts of the app that all threads share.
turn = threading.RLock()


class Here(Publisher):
    """A publisher that keeps its tickets. If closed, no pass claims: only tickets given to it start tasks."""

    lets_go_on = False

    def __init__(self, app: Celeriac, *, closed: bool = False) -> None:
        super().__init__(app)
        self.closed = closed
        self.tickets: deque[Ticket] = deque()

    @property
    def is_open(self) -> bool:
        return not self.closed

    def kick(self, role: str, queue: str, lone: int | None = None) -> bool:  # noqa: ARG002 - there is nobody to hear it
        return True

    def take_up(self, role: str) -> None: ...

    def publish(self, tickets: Iterable[Ticket]) -> bool:
        self.tickets.extend(tickets)
        return True


class Waiting(Enqueuer):
    """An enqueuer that sends no wake-ups, so that its rows wait."""

    def _kick(self, name: str, lone: int | None = None) -> None: ...


def the_app(wanted: Celeriac | None = None) -> Celeriac:
    """Return the given app, or the current one. Raises ConfigurationError if it is not a Celeriac app."""
    from celeriac.app import Celeriac

    app = wanted or current_app._get_current_object()
    if not isinstance(app, Celeriac):
        raise ConfigurationError(f"{app!r} is no Celeriac app: give app=…, or ask for the fixture celeriac_app")
    return app


@contextmanager
def here(app: Celeriac, *, enqueuer: type[Enqueuer] = Waiting, closed: bool = False) -> Iterator[Here]:
    """Keep the app's tickets in this process. Tickets left at the end are handed back."""
    known = app.__dict__.get("publisher")
    publisher = known if isinstance(known, Here) and known.closed == closed else Here(app, closed=closed)
    with exchanged(app, publisher=publisher, enqueuer=enqueuer(app)):
        try:
            yield publisher
        finally:
            if publisher is not known and publisher.tickets:
                _hand_back(app.database, app.process_name, [ticket.token for ticket in publisher.tickets])


@contextmanager
def as_usual(app: Celeriac) -> Iterator[None]:
    """Send tickets and wake-ups to Redis."""
    with exchanged(app, publisher=Publisher(app), enqueuer=Enqueuer(app)):
        yield
        app.enqueuer.kicker.close()
        app.publisher.close()


@contextmanager
def exchanged(app: Celeriac, **parts: Any) -> Iterator[None]:
    """Replace these parts of the app, and restore its own afterwards."""
    before = {name: app.__dict__[name] for name in parts if name in app.__dict__}
    app.__dict__.update(parts)
    try:
        yield
    finally:
        for name in parts:
            app.__dict__.pop(name, None)
        app.__dict__.update(before)


def _hand_back(database: Database, by: str, tokens: list[str]) -> None:
    with database.transaction() as connection:
        release.release(
            connection, tokens, started=False, kind="handed_back", why="nothing runs tasks here any more",
            by=by, loss=False,
        )  # fmt: skip
