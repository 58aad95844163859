"""What the last look of this worker saw in SQL: while that is fresh, none of its other threads looks by itself."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable

#: How much of the time between two looks the consumer's thread may take to hear of one: together they take no longer.
PASSED_ON = 0.25

#: So many looks long what one has seen is fresh.
FRESH = 2.0

#: Seconds after which those who wait for a poll look by themselves, however rarely the setting has it polled.
LONGEST = 2.0


class WorkSeen:
    """Of one process. `outbox`, `ring`: set where there is something to do; `on_roles` hears of roles with work."""

    def __init__(self) -> None:
        self.outbox, self.ring = threading.Event(), threading.Event()
        self.on_roles: Callable[[], object] = lambda: None
        self._lock = threading.Lock()
        self._roles: set[str] = set()
        self._fresh_until = -math.inf

    def note(self, roles: Iterable[str], *, outbox: bool, ring: bool, every: float) -> None:
        """After each look; `every`: the next one comes after so many seconds."""
        with_work = set(roles)
        with self._lock:
            self._roles |= with_work
            self._fresh_until = time.monotonic() + min(FRESH * every, LONGEST)
        for there_is, event in ((outbox, self.outbox), (ring, self.ring)):
            if there_is:
                event.set()
        if with_work:
            self.on_roles()

    def is_fresh(self) -> bool:
        return time.monotonic() < self._fresh_until

    def take(self) -> set[str]:
        """The roles that were seen to have work, each once."""
        with self._lock:
            roles, self._roles = self._roles, set()
        return roles

    def calls_for(self, what: threading.Event) -> bool:
        """Whether there is something to do, or nobody has looked of late."""
        if not what.is_set():
            return not self.is_fresh()
        what.clear()
        return True

    def wake(self) -> None:
        """Whoever waits goes on."""
        self.outbox.set()
        self.ring.set()


#: A process has one worker.
SEEN = WorkSeen()
