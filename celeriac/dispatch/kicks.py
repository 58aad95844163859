"""Send wake-ups from a thread, so that an enqueue never waits for Redis.

All tasks that are enqueued while one wake-up is under way share the next. A lost wake-up (Redis away, the process
killed) delays a start at most until the workers' next poll.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable

from celeriac.errors import CeleriacError
from celeriac.store.forks import after_fork

logger = logging.getLogger(__name__)

#: Seconds that an exiting process waits for its last wake-ups to be sent.
AT_EXIT = 0.6

#: The first and the longest pause (seconds) after a wake-up. It doubles while more is enqueued, so that a burst sends
#: few wake-ups and leaves the processor to the enqueuing thread. A task enqueued by itself does not wait for it.
REST, LONGEST_REST = 0.002, 0.01


class Kicker:
    """Calls `send(role, lone)` in a thread, which the first wake-up starts.

    `lone` is the id of a task that was enqueued by itself, None if several were.
    """

    def __init__(self, send: Callable[[str, int | None], object]) -> None:
        self._send = send
        self._forget()
        after_fork(self._forget)

    def _forget(self) -> None:
        self._wanted: dict[str, int | None] = {}
        self._changed = threading.Condition()
        self._busy = False
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        """Send what is left and end the thread, so that nothing keeps it or its owner alive.
        A later call starts another.
        """
        self.flush()
        atexit.unregister(self.flush)
        with self._changed:
            thread, self._thread = self._thread, None
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(AT_EXIT)

    def kick(self, role: str, lone: int | None = None) -> None:
        """Request a wake-up of the role; return at once."""
        with self._changed:
            self._wanted[role] = None if self._busy or role in self._wanted else lone
            if self._thread is None:
                atexit.register(self.flush)  # not before: one that sends nothing is kept by nobody
                self._thread = threading.Thread(target=self._run, name="celeriac-kicker", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, patience: float = AT_EXIT) -> bool:
        """Wait until nothing is left to send; return False if that takes longer than `patience` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._wanted and not self._busy, patience)

    def _run(self) -> None:
        rest = REST
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._thread is not threading.current_thread())
                if self._thread is not threading.current_thread():
                    return
                wanted, self._wanted, self._busy = self._wanted, {}, True
            for role, lone in wanted.items():
                self._attempt(role, lone)
            time.sleep(rest)
            with self._changed:
                rest = min(2 * rest, LONGEST_REST) if self._wanted else REST
                self._busy = False
                self._changed.notify_all()

    def _attempt(self, role: str, lone: int | None) -> None:
        try:
            self._send(role, lone)
        except CeleriacError as error:
            logger.warning("No wake-up for %s could be sent; the workers' next poll makes up for it: %s", role, error)
        except Exception:
            logger.exception("No wake-up for %s could be sent; the workers' next poll makes up for it", role)
