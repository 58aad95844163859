"""Tasks of workflows, in a worker whose processes die at one statement after the other.

With KILLS, a file's name, the first process of its pool dies at the boundary FIRST it comes to (before or after one of
its statements), the second at the next one, and so on. Each kill is noted first, a line each.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from celery import signals
from sqlalchemy import event, text

from celeriac import Celeriac, Task

app = Celeriac("links")

#: Boundaries to pass before the fatal one.
_left: list[int] = []


@signals.worker_process_init.connect
def arm(**_: Any) -> None:
    if "KILLS" not in os.environ:
        return
    _left[:] = [int(os.environ["FIRST"]) + len(Path(os.environ["KILLS"]).read_text().splitlines())]
    for engine in (app.database.engine, app.database._verbs):
        event.listen(engine, "before_cursor_execute", lambda _, __, said, *___: boundary("before", said))
        event.listen(engine, "after_cursor_execute", lambda _, __, said, *___: boundary("after", said))


def boundary(when: str, statement: str) -> None:
    _left[0] -= 1
    if _left[0] == 0:
        with Path(os.environ["KILLS"]).open("a") as notes:
            notes.write(f"{when} {' '.join(statement.split())[:100]}\n")
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(role="link", chunk=1, stale_after=2, max_losses=100_000, shared=False)
def link(n: int) -> int:
    return n + 1


@app.task(role="member", stale_after=5, max_losses=100_000, shared=False)
def member(n: int) -> int:
    return n


@app.task(bind=True, role="total", stale_after=5, max_losses=100_000, shared=False)
def total(self: Task[..., Any], numbers: list[int]) -> list[int]:
    with app.database.statement() as connection:
        connection.execute(text("INSERT INTO ran (task_id, role) VALUES (:id, 'total')"), {"id": self.request.id})
    return [len(numbers), sum(numbers)]
