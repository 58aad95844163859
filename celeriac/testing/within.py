"""Running tasks in a test's own transaction, as Django's TestCase opens one: its end undoes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from celeriac.run.limited import Limited
from celeriac.run.tally import Tally
from celeriac.store import look
from celeriac.store.connections import Database
from celeriac.testing.here import exchanged

if TYPE_CHECKING:
    from celeriac.app import Celeriac


class Within(Database):
    """The engine's database on a framework's open transaction in this thread: each of its transactions is a savepoint.

    A handler's own session has another connection, which does not see the test's writes.
    """

    def __init__(self, outer: Database, ambient: Any) -> None:
        vars(self).update(vars(outer))
        self._ambient = ambient

    @contextmanager
    def transaction(self, **_: Any) -> Iterator[Any]:
        connection = self._ambient().connection
        look.begin(connection)
        with connection.begin_nested():
            yield connection
        self._look(connection)

    statement = reading = transaction


@contextmanager
def within(app: Celeriac) -> Iterator[bool]:
    """Run the app's tasks in the test's own transaction, if one is open in this thread; yield whether one is."""
    ambient: Any = app.ambient
    opened = ambient()
    inner = ambient.inner() if opened is not None and opened.connection is not None else None
    if inner is None:
        yield False
        return
    database = Within(app.database, ambient)
    parts = {"database": database, "limited": Limited(database), "tally": Tally(database)}
    with exchanged(app, **parts, ambient=inner):
        yield True
