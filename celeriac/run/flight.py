"""A flight: one task in a pool whose slots share a process, from its start to its settle,
and the ticket it came with.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from celeriac.roles.role import Role
from celeriac.run import shared
from celeriac.run.app import RunApp
from celeriac.run.reporting import Reporter
from celeriac.run.requests import Requests
from celeriac.run.run import Run
from celeriac.run.ticket import LEASE_USED


def _nothing(_: int) -> None:
    """Do nothing: the default of a ticket whose tasks nobody notes."""


@dataclass(eq=False, slots=True)
class Ask:
    """A ticket that may be this process's: it is in doubt from the first statement to the first answer.

    `ended` is called with what became of a ticket from Redis. `begin` notes each of its tasks as it begins.
    """

    role: Role
    token: str
    ids: Sequence[int] = ()
    ended: Callable[[dict[str, Any]], None] | None = None
    asked: bool = False
    begin: Callable[[int], None] = _nothing


@dataclass(eq=False, slots=True)
class SharedTicket:
    """A ticket whose tasks are in flight here."""

    role: Role
    ask: Ask
    reporter: Reporter | None
    direct: bool
    requests: Requests
    started_at: float = field(default_factory=time.monotonic)
    left: int = 0
    ran: int = 0
    expired: int = 0

    def lease_ends_soon(self) -> bool:
        return time.monotonic() - max(shared.renewed(), self.started_at) > self.role.stale_after * LEASE_USED

    def give_up_waiting(self) -> None:
        """Do nothing: no task of this ticket waits, all have begun."""


@dataclass(eq=False, slots=True)
class Flight:
    """One task in flight. `broke`: an error of the engine's own, or one that ends a process.
    `why_back`: it never began.

    `is_late`: a thread writes its outcome, with what its handler wrote, once somebody's lock is gone.
    """

    run: Run
    ticket: SharedTicket
    began: float = 0.0
    seconds: float = 0.0
    broke: BaseException | None = None
    why_back: bool = False
    is_late: bool = False
    task: asyncio.Task[None] | None = None


class InFlight(Protocol):
    """All flights of a process, as its filler and its watch see them."""

    app: RunApp
    limit: int
    served: Callable[[], Sequence[Role]]
    lock: threading.Lock
    flights: dict[int, Flight]
    over: threading.Event
    loop: asyncio.AbstractEventLoop
    loop_thread: threading.Thread

    def free(self) -> int: ...
    def free_for(self, role: Role) -> int: ...
    def shares_loop(self, role: str) -> bool: ...
    def launch(self, flights: Sequence[Flight]) -> None: ...
    def land(self, flights: Iterable[Flight]) -> None: ...


def by_role(flights: Iterable[Flight]) -> dict[str, int]:
    """Return how many flights each role has."""
    return dict(Counter(f.ticket.role.name for f in flights))
