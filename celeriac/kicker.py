"""Kicks without waiting: an enqueue never asks Redis anything, a thread beside it does.

However many tasks are enqueued while one kick is under way, they make one more. A kick that is lost (Redis away, the
process killed) costs a start no more than the workers' next look.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable

#: How long (seconds) a process that ends waits for its last kicks.
AT_EXIT = 0.6


class Kicker:
    """`kick(role, queue)` does the asking, in a thread of this process started at the first call."""

    def __init__(self, kick: Callable[[str, str], object]) -> None:
        self._do = kick
        self._forget()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.flush)

    def _forget(self) -> None:
        self._wanted: dict[str, str] = {}
        self._changed = threading.Condition()
        self._busy = False
        self._thread: threading.Thread | None = None

    def kick(self, role: str, queue: str) -> None:
        """Returns at once."""
        with self._changed:
            self._wanted[role] = queue
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="celeriac-kicker", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, patience: float = AT_EXIT) -> bool:
        """Waits until nothing is left to kick; False if that takes longer than `patience` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._wanted and not self._busy, patience)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted)
                wanted, self._wanted, self._busy = self._wanted, {}, True
            for role, queue in wanted.items():
                self._do(role, queue)
            with self._changed:
                self._busy = False
                self._changed.notify_all()
