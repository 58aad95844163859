"""One poller a process: whoever awaits a result or progress on an event loop waits for its next look."""

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

#: Who waits is looked for again after this share of the time it has waited, and after so long (seconds) at the least.
PATIENCE = 0.25
SHORTEST = 0.01

_number = count()


class Progress(NamedTuple):
    """What a task's handler stored last, and whether the task has ended."""

    value: Any
    is_over: bool


@dataclass(eq=False, slots=True)
class Wait:
    """Who waits on a loop: for the end of a task, or for other progress than `last`."""

    task_id: str
    interval: float
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    wants_progress: bool = False
    last: Any = None
    is_new: bool = True
    began: float = field(default_factory=time.monotonic)

    def nap(self, now: float) -> float:
        """Seconds until the next look: soon at first, every `interval` in the end."""
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
    """All that wait are looked for in one statement each time; nobody's loop is blocked.

    `ended` gives the ids and Celery's metas of those tasks that have ended, `progress` what is known of progress.
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
        """Celery's meta of the task once it has ended; a Progress, where `wants_progress`."""
        loop = asyncio.get_running_loop()
        waiting = Wait(task_id, interval, loop, loop.create_future(), **wanted)
        first = 0.0 if waiting.is_new else interval
        self._add([(waiting.began + first, next(_number), waiting)])
        return await waiting.future

    def close(self) -> None:
        """Ends the thread; who waits still is cancelled by nobody else than its own loop."""
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
        """Those it is time to look for, once there are some; None at the end."""
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
        """Answers who can be answered; the rest of them."""
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
    """What it does not know yet. A task that was there and is not any more has ended, and nothing is kept of it."""
    if now is None:
        return None if wait.is_new else Progress(wait.last, True)
    return now if wait.is_new or now.is_over or now.value != wait.last else None
