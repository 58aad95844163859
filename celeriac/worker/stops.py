"""Stops: any signal that asks a worker to end makes it drain; an insisting one has what runs handed back at once.

They replace Celery's handlers: that of SIGQUIT (and of SIGTERM with `REMAP_SIGTERM=SIGQUIT`) ends tasks without a
word, and that of SIGHUP has no grace period. A pool's process handles signals in `celeriac.run.places`.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any

from celery import platforms, signals
from celery.platforms import EX_FAILURE, EX_OK
from celery.utils.log import in_sighandler
from celery.worker import state

from celeriac.run import outlets

SIGNALS = ("SIGTERM", "SIGQUIT", "SIGINT", "SIGHUP")

#: Those that insist when they follow another; a supervisor may repeat SIGTERM.
INSISTING = ("SIGQUIT", "SIGINT")

#: A signal that follows within this time (seconds) was sent with the first: to the group, and again by its starter.
TOGETHER = 0.5

#: Values that `worker_shutting_down` passes on: the grace period begins, or it is over.
WARM, COLD = "Warm", "Cold"


_begins_anew = False


def begin_anew() -> None:
    """Execute the worker's command once more, in this process. Celery's own way loses `python -m`."""
    platforms.close_open_fds([sys.__stdin__, sys.__stdout__, sys.__stderr__])
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


def _begin_anew_if_asked() -> None:
    if _begins_anew:
        begin_anew()


def end() -> None:
    """End the process, whatever its threads do."""
    outlets.finish()
    _begin_anew_if_asked()
    os._exit(0)


class Stops:
    """The signals of one worker's main process."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.pid = os.getpid()
        self.since: float | None = None

    def listen(self) -> None:
        """Install the handlers; do nothing outside of the main thread, which alone gets signals."""
        for name in SIGNALS:
            platforms.signals[name] = self._heard

    def _heard(self, number: int, _: Any) -> None:
        """Handle a signal, in the main thread, between any two steps of it: nothing here waits."""
        if os.getpid() != self.pid:
            return
        name, now = signal.Signals(number).name, time.monotonic()
        insists = self.since is not None and name in INSISTING and now - self.since > TOGETHER
        status = EX_FAILURE if name == "SIGINT" else EX_OK
        global _begins_anew
        with in_sighandler():
            try:
                self._say(COLD if insists else WARM)
                signals.worker_shutting_down.send(
                    sender=self.worker.hostname, sig=name, how=COLD if insists else WARM, exitcode=status
                )
            finally:
                if self.since is None:
                    self.since, state.should_stop = now, status
                    if name == "SIGHUP" and self._restarts():
                        _begins_anew = True
                        atexit.register(_begin_anew_if_asked)
                elif name != "SIGHUP":
                    _begins_anew = False

    def _restarts(self) -> bool:
        """Return whether SIGHUP restarts the worker, as Celery's does unless it has a terminal."""
        return not self.worker._isatty and not self.worker.app.IS_macOS

    def _say(self, how: str) -> None:
        """Print which shutdown begins; the terminal may be gone."""
        with suppress(OSError, ValueError):
            outlets.of(sys.__stdout__).write(f"\nworker: {how} shutdown (MainProcess)\n")
