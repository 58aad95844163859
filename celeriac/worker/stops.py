"""Stops: a signal makes a worker drain; an insisting second one makes it hand back running tasks at once.

These handlers replace Celery's, of which the one for SIGQUIT (and for SIGTERM with `REMAP_SIGTERM=SIGQUIT`) ends tasks
unreported, and the one for SIGHUP has no grace period. A pool's process handles signals in `celeriac.run.places`.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import platforms, signals, states
from celery.exceptions import TimeLimitExceeded
from celery.platforms import EX_FAILURE, EX_OK
from celery.utils.log import in_sighandler
from celery.worker import state
from sqlalchemy import Connection

from celeriac.insights.fleet import held
from celeriac.insights.fleet.held import Row
from celeriac.run import journal, outlets, shared, traces
from celeriac.run.app import ReporterApp
from celeriac.run.journal import Journal
from celeriac.settle import release
from celeriac.settle.outcome import Outcome
from celeriac.store.connections import Database
from celeriac.store.encoding import revived
from celeriac.store.states import FAILED, PENDING
from celeriac.worker.herald import event_of
from celeriac.worker.holdings import tokens_at_hand

SIGNALS = ("SIGTERM", "SIGQUIT", "SIGINT", "SIGHUP")

#: Signals that insist if they follow another one. SIGTERM does not: a supervisor may repeat it.
INSISTING = ("SIGQUIT", "SIGINT")

#: A signal within this time (seconds) of the first one is the same stop: one may have gone to the process group, the
#: other come from the process that started the worker.
TOGETHER = 0.5

#: The values of `how` in the signal `worker_shutting_down`: the grace period begins, or it is over.
WARM, COLD = "Warm", "Cold"


_begins_anew = False


def begin_anew() -> None:
    """Execute the worker's command again, in this process. Celery's own way would lose `python -m`."""
    platforms.close_open_fds([sys.__stdin__, sys.__stdout__, sys.__stderr__])
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


def _begin_anew_if_asked() -> None:
    if _begins_anew:
        begin_anew()


def end() -> None:
    """End the process, whatever its threads are doing."""
    outlets.finish()
    _begin_anew_if_asked()
    os._exit(0)


def end_within(seconds: float) -> None:
    """End the process so long after Python begins to end it: Python waits without a limit for threads, executors, exit
    hooks and processes of `multiprocessing` that handlers have left.
    """
    with suppress(RuntimeError):  # it is ending already
        _before_executors(lambda: Thread(target=_end_after, args=(seconds,), name="end", daemon=True).start())


def _end_after(seconds: float) -> None:
    time.sleep(seconds)
    left = sorted(one.name for one in threading.enumerate() if not one.daemon and one is not threading.main_thread())
    logger.error(
        "Worker %s has stopped, and what its tasks have left behind keeps its process (threads: %s): it is ended",
        shared.worker_id(), ", ".join(left) or "none",
    )  # fmt: skip
    end()


class Stops:
    """The signals of one worker's main process."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.pid = os.getpid()
        self.since: float | None = None

    def listen(self) -> None:
        """Install the handlers; outside of the main thread, which alone gets signals, do nothing."""
        for name in SIGNALS:
            platforms.signals[name] = self._heard

    def _heard(self, number: int, _: Any) -> None:
        """Handle a signal. It interrupts the main thread anywhere, so this may not wait for a lock."""
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
        """Return whether SIGHUP restarts the worker; as in Celery, not if it has a terminal."""
        return not self.worker._isatty and not self.worker.app.IS_macOS

    def _say(self, how: str) -> None:
        """Print which shutdown begins, if the terminal is still there."""
        with suppress(OSError, ValueError):
            outlets.of(sys.__stdout__).write(f"\nworker: {how} shutdown (MainProcess)\n")


# Python waits for executors before it calls any hook of `atexit`.
try:
    from threading import _register_atexit as _before_executors  # type: ignore[attr-defined]
except ImportError:
    _before_executors = atexit.register

logger = logging.getLogger(__name__)


def tell(tasks: Mapping[str, Any], outcome: Outcome, became: str | None) -> None:
    """Call the hooks and send the signal of a task that has failed for good, in a thread: a hook may take long."""
    if became == FAILED:
        Thread(target=_call, args=(tasks[outcome.task.role], outcome), name="hooks", daemon=True).start()


def _call(task: Any, outcome: Outcome) -> None:
    started, error = outcome.task, TimeLimitExceeded(*outcome.result["exc_message"])
    call = started.task_id, revived(started.args), revived(started.kwargs)
    try:
        raise error
    except TimeLimitExceeded:
        info = ExceptionInfo()
    _try(lambda: task.on_failure(error, *call, info), task)
    _try(lambda: task.after_return(states.FAILURE, error, *call, None), task)
    said = dict(zip(("task_id", "args", "kwargs"), call, strict=True))
    signals.task_failure.send(sender=task, exception=error, traceback=error.__traceback__, einfo=info, **said)


def _try(hook: Callable[[], Any], task: Any) -> None:
    """Call the hook; log its error, so that the other hooks still run."""
    try:
        hook()
    except Exception:
        logger.exception("A hook of %s failed, after its time limit", task.name)


WHY = "its worker stopped"

#: Maximum number of tasks about which events are sent; a worker holds few more than it runs.
MOST = 10_000


def hand_back(database: Database, app: ReporterApp, processes: Iterable[int]) -> bool:
    """Free the tasks of this worker's tickets; return whether some stay, locked by another transaction."""
    me = shared.worker_id()
    rows = _known(database) if shared.telling() else []
    with database.transaction() as connection:
        tokens = release.of_process(connection, me, None)
        freed = release.release(connection, tokens, started=True, kind="handed_back", why=WHY, by=me, loss=False)
        kept = release.still_held(connection, tokens)
    waits = {task.id for task in freed if task.becomes == PENDING}
    handed_back = [row for row in rows if row["id"] in waits and journal.tells_of(app.tasks, row["role"])]
    _send_events(app.journal, handed_back, shared.current(processes))
    return bool(kept)


def hand_back_unstarted(database: Database) -> None:
    """Hand back the tickets that this process has taken from Redis and not begun."""
    me = shared.worker_id()
    with database.transaction() as connection:
        release.release(connection, tokens_at_hand(), started=False, kind="handed_back", why=WHY, by=me, loss=False)


def _known(database: Database) -> list[Row]:
    with database.reading() as connection:
        return held.held(connection, shared.worker_id(), [], most=MOST)


def _send_events(events: Journal, rows: Iterable[Row], began: Collection[int]) -> None:
    """Send events about tasks that wait again. The event reporter sends those about cancelled ones."""
    for row in rows:
        again = event_of(row | {"kind": "handed_back", "became": PENDING, "why": WHY, "node": None})
        if row["id"] not in began:
            again = journal.event("task-rejected", again["uuid"], again["name"], requeue=True)
        events.write(again)
    events.flush()


def release_lost(connection: Connection, url: str, tokens: Sequence[str]) -> list[str]:
    """Release the tickets of lost processes and return the locked ones. A task that had not begun counts no loss."""
    traces.spare(connection, url, tokens)
    release.release(
        connection, tokens, started=True, kind="worker_lost", why="its process was lost", by=shared.worker_id(),
        loss=True,
    )  # fmt: skip
    return list(release.still_held(connection, tokens))
