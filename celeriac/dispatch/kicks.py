"""Kicks without waiting: an enqueue never asks Redis anything, a thread beside it does.

However many tasks are enqueued while one kick is under way, they make one more. A kick that is lost (Redis away, the
process killed) costs a start no more than the workers' next look.
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

#: How long (seconds) a process that ends waits for its last kicks.
AT_EXIT = 0.6

#: A rest (seconds) after each kick. While more is enqueued meanwhile it doubles, up to the longest: a burst makes few
#: kicks, and leaves the processor to whoever enqueues. A task that comes by itself never meets it.
REST, LONGEST_REST = 0.002, 0.01


class Kicker:
    """`send(role, lone)` does the asking, in a thread started at the first call.

    `lone` is the row of a task that was enqueued by itself, None where several were.
    """

    def __init__(self, send: Callable[[str, int | None], object]) -> None:
        self._send = send
        self._forget()
        after_fork(self._forget)
        atexit.register(self.flush)

    def _forget(self) -> None:
        self._wanted: dict[str, int | None] = {}
        self._changed = threading.Condition()
        self._busy = False
        self._thread: threading.Thread | None = None
        self._closed = False

    def close(self) -> None:
        """Sends what is left and ends the thread: nothing keeps it alive, nor who made it. A later call begins anew."""
        self.flush()
        atexit.unregister(self.flush)
        with self._changed:
            thread, self._thread, self._closed = self._thread, None, True
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(AT_EXIT)

    def kick(self, role: str, lone: int | None = None) -> None:
        """Returns at once."""
        with self._changed:
            self._wanted[role] = None if self._busy or role in self._wanted else lone
            if self._thread is None:
                if self._closed:
                    atexit.register(self.flush)
                self._closed = False
                self._thread = threading.Thread(target=self._run, name="celeriac-kicker", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, patience: float = AT_EXIT) -> bool:
        """Waits until nothing is left to send; False if that takes longer than `patience` seconds."""
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
            logger.warning("Could not kick %s; the workers' next look makes up for it: %s", role, error)
        except Exception:
            logger.exception("Could not kick %s; the workers' next look makes up for it", role)
