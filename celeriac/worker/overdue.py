"""Hard limits: a process that is past its task's hard limit is stopped.

The task counts as timed out; other tasks of its ticket that have run and are not settled count as lost. While Postgres
is away the process is stopped as well; then its task also counts as lost.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

import psutil
from sqlalchemy.exc import DBAPIError

from celeriac.roles.declare import Roles
from celeriac.run import lease, outcomes, shared
from celeriac.run.shared import HardLimit
from celeriac.settle import write
from celeriac.settle.outcome import Outcome
from celeriac.store.connections import Database

logger = logging.getLogger(__name__)


#: Calls hooks and sends events for a stopped process, with its task's outcome and new status.
Tell = Callable[[Outcome, str | None], None]


def stop(database: Database, roles: Roles, processes: Iterable[int], tell: Tell) -> float:
    """Stop the processes that are past their limits; return when (monotonic) the next one will be."""
    now = time.monotonic()
    ends = math.inf
    for limit in shared.limits(processes):
        if limit.ends <= now:
            _stop(database, roles, limit, tell)
        else:
            ends = min(ends, limit.ends)
    return ends


def _stop(database: Database, roles: Roles, limit: HardLimit, tell: Tell) -> None:
    """Stop the process, and report that last: once its task is timed out, an error may not keep the process running."""
    ended: tuple[Outcome, str | None] | None = None
    try:
        ended = _time_out(database, roles, limit)
        late = ended is not None
    except DBAPIError as error:
        logger.warning("What process %d runs past its time limit could not be settled: %s", limit.pid, error)
        late = limit in shared.limits([limit.pid])
    if late:
        logger.error("Process %d is past its time limit and is stopped", limit.pid)
        kill(limit.pid)
    if ended is not None:
        tell(*ended)


def _time_out(database: Database, roles: Roles, limit: HardLimit) -> tuple[Outcome, str | None] | None:
    """Settle the task as timed out; return its outcome and new status, or None if its process has ended the task."""
    with database.transaction() as connection:
        task = lease.running(connection, limit.task, shared.worker_id(), limit.pid)
        declared = roles.get(task.role) if task else None
        if task is None or declared is None or limit not in shared.limits([limit.pid]):
            return None
        outcome = outcomes.timed_out(task, declared.role)
        became = write.settle(connection, [outcome], shared.worker_id()).get(task.id)
    return outcome, became


def kill(pid: int) -> None:
    """Stop a process of the pool, and processes that its handlers started in its session; log detached ones."""
    started = below(pid)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        logger.info("Process %d had gone already", pid)
    stop_all(started)


def below(pid: int) -> list[psutil.Process]:
    """Return all processes that this process has started, directly or not."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []


class LeftBehind:
    """The processes below a worker that its tasks may have started, listed as it begins to drain: once a child of the
    pool has ended, the processes that it started have no known parent.

    Processes that were there before its first task (the application's, beat) are left out.
    """

    #: Processes that Python itself starts, which end with their parent.
    OF_PYTHON = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")

    def __init__(self) -> None:
        self._spared: set[psutil.Process] = set()
        self._seen: set[psutil.Process] | None = None
        self._shares_process = False

    def spare(self, pool: Collection[int]) -> None:
        """Note the processes below the worker, except its pool's, before it takes its first task."""
        self._spared.update(process for process in below(os.getpid()) if process.pid not in pool)

    def look(self, pool: Collection[int]) -> None:
        """List the processes once, while the pool's children are there. `pool`: the processes in which tasks run."""
        if self._seen is None:
            self._shares_process = os.getpid() in pool
            seen = {process for process in below(os.getpid()) if process.pid not in pool}
            self._seen = seen - self._others()

    def part(self, *, stops: bool) -> None:
        """Log the processes that go on. `stops`: tasks were handed back; if they shared this process, stop all those
        below it instead: the tasks that may have started them run again.
        """
        stops = stops and self._shares_process
        seen = {*(self._seen or ()), *(below(os.getpid()) if stops else ())}
        left = [process for process in seen - self._others() if self._goes_on(process)]
        if stops:
            stop_all(left)
            return
        for process in left:
            logger.warning("The worker ends, and %s (%d), which its tasks may have started, goes on", *_name(process))

    def _others(self) -> set[psutil.Process]:
        """Return the processes that were there before the tasks, and those below them."""
        return {one for process in self._spared if process.is_running() for one in (process, *below(process.pid))}

    def _goes_on(self, process: psutil.Process) -> bool:
        try:
            is_pythons = any(module in argument for argument in process.cmdline() for module in self.OF_PYTHON)
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE and not is_pythons
        except psutil.Error:
            return False


def _name(process: psutil.Process) -> tuple[str, int]:
    try:
        return process.name(), process.pid
    except psutil.Error:
        return "a process", process.pid


def stop_all(processes: Iterable[psutil.Process]) -> None:
    """Kill the processes of this session; log all."""
    for process in processes:
        with suppress(psutil.Error, OSError):
            name, mine = process.name(), os.getsid(process.pid) == os.getsid(0)
            if mine:
                process.kill()
            became = "is stopped with it" if mine else "goes on, in a session of its own"
            logger.warning("A process that is stopped had started %s (%d), which %s", name, process.pid, became)
