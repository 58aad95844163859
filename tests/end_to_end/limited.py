"""An app whose configuration limits the time of each task, as Celery's settings do."""

from __future__ import annotations

import time

from celeriac import Celeriac

app = Celeriac("limited")
app.conf.task_soft_time_limit = 1.5
app.conf.task_time_limit = 30


@app.task(shared=False, role="short", chunk=20)
def short(seconds: float) -> None:
    time.sleep(seconds)


@app.task(shared=False, role="long", max_retries=0)
def long(seconds: float) -> None:
    time.sleep(seconds)
