"""Watches a demo's work until nothing is left to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sqlalchemy import text

from demo.screen import Screen
from demo.stage import Process, StageError

#: A demo's tasks: what beat's other schedules enqueue meanwhile may have no worker here, and waits.
TASKS = text("""
CREATE VIEW demo_tasks AS SELECT * FROM worker_tasks WHERE coalesce(enqueued_by, '') NOT LIKE 'schedule %'
""")

#: From the seconds so far: a line that tells how far the work is, and whether all of it is done.
Look = Callable[[float], tuple[str, bool]]


def watch(look: Look, processes: Sequence[Process], screen: Screen, *, gives_up_after: float) -> None:
    """Looks several times a second. Returns in time or late: the verdicts tell. Raises StageError if a process ends."""
    began = time.monotonic()
    while (seconds := time.monotonic() - began) < gives_up_after:
        line, done = look(seconds)
        screen.progress(f"{seconds:4.0f} s  {line}")
        if done:
            return
        _expect_alive(processes)
        time.sleep(0.25)
    screen.say(f"Giving up after {gives_up_after:g} s.")


def _expect_alive(processes: Sequence[Process]) -> None:
    for process in processes:
        if process.ended:
            raise StageError(f"the {process.name} ended by itself:\n{process.printed()[-2000:]}")
