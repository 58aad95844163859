"""An app whose events celery-exporter counts: stock or ours by `EXPORTED_CELERY`. Each task has a queue of its own."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

from celeriac import Celeriac


def make(which: str) -> Any:
    if which == "ours":
        return Celeriac("exported")
    return Celery("exported", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"])


app = make(os.environ["EXPORTED_CELERY"])


@app.task(name="exported.add", queue="exported.add", shared=False)
def add(x: int) -> int:
    return x + 1


@app.task(name="exported.fail", queue="exported.fail", shared=False)
def fail() -> None:
    raise KeyError("lost")


@app.task(name="exported.again", queue="exported.again", shared=False, bind=True, max_retries=3)
def again(self: Any) -> int:
    if self.request.retries == 0:
        raise self.retry(countdown=0)
    return int(self.request.retries)


def send() -> None:
    for x in range(3):
        add.delay(x)
    fail.delay()
    again.delay()


if __name__ == "__main__":
    from tests.matrix.around import exported

    exported.send()
