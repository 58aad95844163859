"""Modes of a test, which decide whether enqueued tasks wait or run at once."""

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
    """An enqueuer that runs its tasks before the call returns, and all that are enqueued meanwhile."""

    app: Celeriac

    def _kick(self, name: str, lone: int | None = None) -> None:  # noqa: ARG002
        drain(raising=False, app=self.app)


@contextmanager
def mode(name: Literal["manual", "inline", "worker"], *, app: Celeriac | None = None) -> Iterator[None]:
    """Set how calls of the given app, or the current one, behave.

    `manual`: tasks wait as rows. `inline`: due tasks run when the call is committed, so `.get()` returns at once;
    planned tasks and retries wait. `worker`: within another mode, calls behave as without a mode.
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
