"""A code base that takes what plain Celery apps send. Its task tells the `ran` table of its runs."""

from __future__ import annotations

import os
import time
from typing import Any

from sqlalchemy import text

from celeriac import Celeriac, Settings, Task
from celeriac.worker.adopter import Adopter

app = Celeriac("till", adopt=True)


def adopt(database_url: str, redis_url: str) -> None:
    """A process that does nothing else, until it is killed."""
    app.settings = Settings(database_url=database_url, redis_url=redis_url, adopt_interval=0.005)
    app.conf.broker_url = redis_url
    Adopter(app, lambda: {"charge"}).run()


@app.task(bind=True, role="charge", chunk=1, stale_after=2, max_losses=1000, shared=False)
def charge(self: Task[..., Any], n: int, seconds: float = 0.05) -> int:
    for what in ("begin", "end"):
        with app.database.statement() as connection:
            connection.execute(
                text("INSERT INTO ran (task_id, role, pid, what) VALUES (:id, 'charge', :pid, :what)"),
                {"id": self.request.id, "pid": os.getpid(), "what": what},
            )
        if what == "begin":
            time.sleep(seconds)
    return n
