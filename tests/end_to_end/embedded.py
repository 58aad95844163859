"""A module whose worker runs its beat, too (`celery worker -B`)."""

from __future__ import annotations

import os

from celery.schedules import crontab

from celeriac import Celeriac as Celery

app = Celery("embedded")


@app.task(name="embedded.add")
def add(x, y):
    return x + y


@app.on_after_configure.connect
def periodic(sender, **_):
    sender.add_periodic_task(0.5, add.s(1, 2), name="often")
    if os.environ.get("MOON"):
        sender.add_periodic_task(crontab(nowfun=app.now), add.s(1, 2), name="moon")
