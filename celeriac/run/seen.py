"""The result of this worker's last poll, shared by its threads: while it is fresh, none of the others polls by
itself.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable

#: The part of the time between two polls in which the consumer's thread has to learn of a poll: both together take no
#: longer than that time.
PASSED_ON = 0.25

#: For how many intervals between polls a result is fresh.
FRESH = 2.0

#: Seconds after which a thread that waits for a poll polls by itself, however long the configured interval is.
LONGEST = 2.0


class WorkSeen:
    """A process's results. `outbox`, `ring`: set if there is something to do; `on_roles` is called with roles
    that have work.
    """

    def __init__(self) -> None:
        self.outbox, self.ring = threading.Event(), threading.Event()
        self.on_roles: Callable[[], object] = lambda: None
        self._lock = threading.Lock()
        self._roles: set[str] = set()
        self._fresh_until = -math.inf

    def note(self, roles: Iterable[str], *, outbox: bool, ring: bool, every: float) -> None:
        """Note the result of a poll; `every`: seconds until the next one."""
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
        """Return the roles that were seen to have work, each only once."""
        with self._lock:
            roles, self._roles = self._roles, set()
        return roles

    def calls_for(self, what: threading.Event) -> bool:
        """Return whether there is something to do, or nobody has polled lately."""
        if not what.is_set():
            return not self.is_fresh()
        what.clear()
        return True

    def wake(self) -> None:
        """Wake the threads that wait."""
        self.outbox.set()
        self.ring.set()


#: A process has one worker.
SEEN = WorkSeen()
