"""An app under Sentry, stock or ours by `WATCHED_CELERY`: what Sentry would send lies in the folder `WATCHED_SENT`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import sentry_sdk
from celery import Celery
from celery.schedules import schedule
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.transport import Transport

from celeriac import Celeriac


class Kept(Transport):
    """A file an envelope."""

    def capture_envelope(self, envelope: Envelope) -> None:
        folder = Path(os.environ["WATCHED_SENT"])
        unfinished = folder / f".{uuid4()}"
        unfinished.write_bytes(envelope.serialize())
        unfinished.rename(folder / f"{uuid4()}.envelope")


def make(which: str) -> Any:
    if which == "stock":
        redis_url = os.environ["REDIS_URL"]
        return Celery("watched", broker=redis_url, backend=redis_url)
    return Celeriac("watched")


def watch() -> None:
    sentry_sdk.init(
        "http://key@127.0.0.1:9/1", transport=Kept, traces_sample_rate=1.0, auto_enabling_integrations=False,
        integrations=[CeleryIntegration(monitor_beat_tasks=True)],
    )  # fmt: skip


if "WATCHED_CELERY" in os.environ:
    watch()

app = make(os.environ.get("WATCHED_CELERY", "celeriac"))
app.conf.beat_schedule = {"each minute": {"task": "watched.tick", "schedule": schedule(60.0)}}


@app.task(name="watched.work", shared=False)
def work(x: int) -> int:
    return x + 1


@app.task(name="watched.fail", shared=False)
def fail() -> None:
    raise KeyError("lost")


@app.task(name="watched.tick", shared=False)
def tick() -> None: ...


def send() -> None:
    """As a web request does; prints its trace."""
    with sentry_sdk.start_transaction(name="a request", op="http.server") as transaction:
        print(transaction.trace_id)
        work.delay(1)
        fail.delay()
    sentry_sdk.flush()


if __name__ == "__main__":
    from tests.end_to_end import watched

    watched.send()
