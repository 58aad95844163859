"""Rate wake-ups, a thread of the parent: dispatches tasks of roles with a rate when they get new tokens.

A bucket holds one period's tokens: with "10/s" it is full before the lifeline's next poll, and further ones are lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from celeriac.dispatch import select
from celeriac.roles.role import Role
from celeriac.run import shared
from celeriac.run.places import places
from celeriac.store.failures import Away, is_gone, log_error
from celeriac.worker.app import WorkerApp

logger = logging.getLogger(__name__)

#: The longest and the shortest time (seconds) between two checks.
SELDOM, OFTEN = 1.0, 0.01

#: Maximum number of times that the wait doubles for a role that has tokens and claims nothing, as its window is full.
VAIN = 10


class Refills(threading.Thread):
    """Dispatches tasks of the `served()` roles that have a rate, until `ending`. Without any it queries nothing."""

    def __init__(self, app: WorkerApp, served: Callable[[], Sequence[Role]], ending: threading.Event) -> None:
        super().__init__(name="celeriac-refills", daemon=True)
        self.app = app
        self.served = served
        self.ending = ending
        self.vain: dict[str, int] = {}
        self.not_before: dict[str, float] = {}
        self.away = Away()

    def run(self) -> None:
        while not self.ending.wait(self.attempt()):
            pass

    def attempt(self) -> float:
        """Check once; return how long (seconds) to wait for the next check."""
        try:
            return min(max(self.look(), OFTEN), SELDOM)
        except Exception as error:
            if is_gone(error):
                self.away.say(error)
            else:
                log_error(logger, error, "Roles with a rate are dispatched by the lifeline alone; it is tried again")
            return SELDOM

    def look(self) -> float:
        rated = {role.lane: role for role in self._rated()}
        if not rated:
            return SELDOM
        with self.app.database.statement() as connection:
            refills = select.refills(connection, list(rated))
        return min((self._refill(rated[refill.role], refill) for refill in refills), default=SELDOM)

    def _rated(self) -> list[Role]:
        """Return the roles with a rate; none before the lifeline's first poll, which reads the limits."""
        if shared.closed() or not shared.limits_as_of():
            return []
        return [role for role in self.served() if role.prompt and self.app.limited.of(role.name).rate_limit]

    def _refill(self, role: Role, refill: select.Refill) -> float:
        """Dispatch the role's tasks if it has tokens; return how long (seconds) until it has more."""
        now = time.monotonic()
        wait = max(refill.seconds, self.not_before.get(role.lane, 0.0) - now)
        if wait > 0:
            return wait
        published = self._give_out(role)
        self.vain[role.lane] = vain = 0 if published else min(self.vain.get(role.lane, 0) + 1, VAIN)
        wait = refill.step * 2**vain
        self.not_before[role.lane] = now + wait if vain else 0.0
        return wait

    def _give_out(self, role: Role) -> int:
        if places.wake is None:
            return self.app.dispatcher.publish(self.app.dispatcher.claim(role))
        places.wake(role.lane)
        return 1
