"""Stops: a signal to end makes a worker drain; an insisting one makes it hand back running tasks at once.

These handlers replace Celery's: that of SIGQUIT (and of SIGTERM with `REMAP_SIGTERM=SIGQUIT`) ends tasks without
reporting them, and that of SIGHUP has no grace period. A pool's process handles signals in `celeriac.run.places`.
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
from celery.worker.state import reserved_requests
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

SIGNALS = ("SIGTERM", "SIGQUIT", "SIGINT", "SIGHUP")

#: Signals that insist if they follow another one. SIGTERM does not: a supervisor may repeat it.
INSISTING = ("SIGQUIT", "SIGINT")

#: A signal that follows within this time (seconds) belongs to the first: one went to the process group, the other came
#: from the starter.
TOGETHER = 0.5

#: The values in the signal `worker_shutting_down`: the grace period begins, or it is over.
WARM, COLD = "Warm", "Cold"


_begins_anew = False


def begin_anew() -> None:
    """Execute the worker's command again, in this process. Celery's own way loses `python -m`."""
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
    """End the process so long after Python began to end it: Python waits for all that handlers have left there without
    a limit, for threads, executors, exit hooks and processes of `multiprocessing`.
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
        """Install the handlers; do nothing outside of the main thread, which alone gets signals."""
        for name in SIGNALS:
            platforms.signals[name] = self._heard

    def _heard(self, number: int, _: Any) -> None:
        """Handle a signal. It interrupts the main thread between any two steps, so nothing here may wait."""
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


# Executors are waited for before any hook of `atexit` is called.
try:
    from threading import _register_atexit as _before_executors  # type: ignore[attr-defined]
except ImportError:
    _before_executors = atexit.register

logger = logging.getLogger(__name__)


def tell(tasks: Mapping[str, Any], outcome: Outcome, became: str | None) -> None:
    """Call the hooks and send the signal, if the task has failed for good; in a thread of their own, since a hook may
    take long.
    """
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
    """Call the hook. One that fails is logged, and the other hooks still run."""
    try:
        hook()
    except Exception:
        logger.exception("A hook of %s failed, after its time limit", task.name)


WHY = "its worker stopped"

#: For how many tasks events are sent at most; a worker holds few more than it runs.
MOST = 10_000


def hand_back(database: Database, app: ReporterApp, processes: Iterable[int]) -> bool:
    """Free the tasks of this worker's tickets; return whether somebody had some of them locked."""
    me = shared.worker_id()
    rows = _known(database) if shared.telling() else []
    with database.transaction() as connection:
        tokens = release.of_process(connection, me, None)
        freed = release.release(connection, tokens, started=True, kind="handed_back", why=WHY, by=me, loss=False)
        kept = release.still_held(connection, tokens)
    waits = {task.id for task in freed if task.becomes == PENDING}
    handed_back = [row for row in rows if row["id"] in waits and journal.tells_of(app.tasks, row["role"])]
    _tell(app.journal, handed_back, shared.current(processes))
    return bool(kept)


def hand_back_unstarted(database: Database) -> None:
    """Hand back tickets that this process has taken from Redis and not begun."""
    tokens = [token for _, _, token in (request.args for request in list(reserved_requests)) if token]
    with database.transaction() as connection:
        release.release(
            connection, tokens, started=False, kind="handed_back", why=WHY, by=shared.worker_id(), loss=False
        )


def _known(database: Database) -> list[Row]:
    with database.reading() as connection:
        return held.held(connection, shared.worker_id(), [], most=MOST)


def _tell(events: Journal, rows: Iterable[Row], began: Collection[int]) -> None:
    """Send events about tasks that wait again; the event reporter sends those about tasks cancelled meanwhile."""
    for row in rows:
        again = event_of(row | {"kind": "handed_back", "became": PENDING, "why": WHY, "node": None})
        if row["id"] not in began:
            again = journal.event("task-rejected", again["uuid"], again["name"], requeue=True)
        events.write(again)
    events.flush()


def release_lost(connection: Connection, url: str, tokens: Sequence[str]) -> list[str]:
    """Release the tickets of lost processes and return those that are locked.
    A task that had not begun counts no loss.
    """
    traces.spare(connection, url, tokens)
    release.release(
        connection, tokens, started=True, kind="worker_lost", why="its process was lost", by=shared.worker_id(),
        loss=True,
    )  # fmt: skip
    return list(release.still_held(connection, tokens))
