"""Modes of calls in a test: their tasks wait, or run at once."""

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
    """An enqueuer that runs its tasks before the call returns, with those that they or others enqueue meanwhile."""

    app: Celeriac

    def _kick(self, name: str, lone: int | None = None) -> None:  # noqa: ARG002
        drain(raising=False, app=self.app)


@contextmanager
def mode(name: Literal["manual", "inline", "worker"], *, app: Celeriac | None = None) -> Iterator[None]:
    """Set how calls behave. `manual`: they are rows that wait. `inline`: due tasks run as a call is committed; `.get()`
    tells how the task ended, and planned tasks, retries among them, wait. `worker`: as without a mode, within another
    one. For the current app, or the given one.
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
