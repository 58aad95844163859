"""The process's poller: all awaits of results and progress on event loops are answered by its polls."""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from celeriac.store.forks import after_fork

#: The pause before a task's next poll: this share of the time it was awaited so far, and at least so many seconds.
PATIENCE = 0.25
SHORTEST = 0.01

_number = count()


class Progress(NamedTuple):
    """The handler's last stored value, and whether the task has ended."""

    value: Any
    is_over: bool


@dataclass(eq=False, slots=True)
class Wait:
    """One await on an event loop: for a task's end, or for progress that differs from `last`."""

    task_id: str
    interval: float
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    wants_progress: bool = False
    last: Any = None
    is_new: bool = True
    began: float = field(default_factory=time.monotonic)

    def nap(self, now: float) -> float:
        """Return the seconds until the next poll, which grow up to `interval`."""
        if self.wants_progress and not self.is_new:
            return self.interval
        return min(self.interval, max(SHORTEST, (now - self.began) * PATIENCE))

    def answer(self, result: Any) -> None:
        self._tell(self.future.set_result, result)

    def fail(self, error: Exception) -> None:
        self._tell(self.future.set_exception, error)

    def _tell(self, settle: Callable[[Any], object], what: Any) -> None:
        def act() -> None:
            if not self.future.done():
                settle(what)

        with suppress(RuntimeError):  # its loop is closed
            self.loop.call_soon_threadsafe(act)


class Poller:
    """The poller: one statement reads everything that is awaited, in a thread, so that no loop is blocked.

    `ended` returns the ids and Celery's metas of tasks that have ended, `progress` the known progress.
    """

    def __init__(
        self,
        ended: Callable[[Iterable[str]], Iterable[tuple[str, Any]]],
        progress: Callable[[Collection[str]], Mapping[str, Progress]],
    ) -> None:
        self._ended, self._progress = ended, progress
        self._forget()
        after_fork(self._forget)

    def _forget(self) -> None:
        self._waits: list[tuple[float, int, Wait]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    async def wait(self, task_id: str, interval: float, **wanted: Any) -> Any:
        """Return Celery's meta of the task once it has ended; with `wants_progress`, its next Progress."""
        loop = asyncio.get_running_loop()
        waiting = Wait(task_id, interval, loop, loop.create_future(), **wanted)
        first = 0.0 if waiting.is_new else interval
        self._add([(waiting.began + first, next(_number), waiting)])
        return await waiting.future

    def close(self) -> None:
        """End the thread. Open waits are not cancelled here; only their own loops can do that."""
        with self._changed:
            self._thread = None
            self._changed.notify_all()

    def _add(self, waits: Iterable[tuple[float, int, Wait]]) -> None:
        with self._changed:
            for entry in waits:
                heapq.heappush(self._waits, entry)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="celeriac-poller", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _run(self) -> None:
        me = threading.current_thread()
        while (due := self._due(me)) is not None:
            left = self._look(due)
            now = time.monotonic()
            with self._changed:
                for wait in left:
                    heapq.heappush(self._waits, (now + wait.nap(now), next(_number), wait))

    def _due(self, me: threading.Thread) -> list[Wait] | None:
        """Wait until polls are due and return their waits; None when the poller has ended."""
        with self._changed:
            while self._thread is me:
                now = time.monotonic()
                if self._waits and self._waits[0][0] <= now:
                    due = []
                    while self._waits and self._waits[0][0] <= now + SHORTEST / 2:
                        due.append(heapq.heappop(self._waits)[2])
                    return [wait for wait in due if not wait.future.done()]
                self._changed.wait(self._waits[0][0] - now if self._waits else None)
        return None

    def _look(self, due: list[Wait]) -> list[Wait]:
        """Answer the waits that can be answered; return the others."""
        try:
            ids = {wait.task_id for wait in due if not wait.wants_progress}
            ended = dict(self._ended(ids)) if ids else {}
            ids = {wait.task_id for wait in due if wait.wants_progress}
            progress = self._progress(ids) if ids else {}
        except Exception as error:
            for wait in due:
                wait.fail(error)
            return []
        left = []
        for wait in due:
            answer = progress.get(wait.task_id) if wait.wants_progress else ended.get(wait.task_id)
            if wait.wants_progress:
                answer = _news(wait, answer)
            if answer is None:
                left.append(wait)
            else:
                wait.answer(answer)
        return left


def _news(wait: Wait, now: Progress | None) -> Progress | None:
    """Return progress that is new to the wait, else None. A task that is gone counts as ended: its role keeps none."""
    if now is None:
        return None if wait.is_new else Progress(wait.last, True)
    return now if wait.is_new or now.is_over or now.value != wait.last else None
