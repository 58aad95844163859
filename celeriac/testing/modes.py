"""What becomes of a call in a test: it waits, or it runs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Literal

from celeriac.errors import BadValue
from celeriac.seam.enqueuer import Enqueuer
from celeriac.testing.here import as_usual, here, the_app
from celeriac.testing.running import drain

if TYPE_CHECKING:
    from celeriac.app import Celeriac


class AtOnce(Enqueuer):
    """What it inserts is run, with what comes of that, before the call returns. What is enqueued meanwhile is, too."""

    app: Celeriac

    def _kick(self, name: str, lone: int | None = None) -> None:  # noqa: ARG002
        drain(raising=False, app=self.app)


@contextmanager
def mode(name: Literal["manual", "inline", "worker"], *, app: Celeriac | None = None) -> Iterator[None]:
    """`manual`: calls are rows that wait. `inline`: whatever is due runs as a call is committed; `.get()` says how it
    ended, and what is planned for later, retries among it, waits. `worker`: as without any, within another mode. Of the
    current app, or of the one given.
    """
    if name not in MODES:
        raise BadValue(f"mode({name!r}): give 'manual', 'inline' or 'worker'")
    with MODES[name](the_app(app)):
        yield


MODES: Mapping[str, Callable[[Celeriac], AbstractContextManager[object]]] = {
    "manual": here,
    "inline": lambda app: here(app, enqueuer=AtOnce),
    "worker": as_usual,
}
