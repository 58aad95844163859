"""An app that an agent watches: stock or ours by `WATCHED_CELERY`, whose agent is `WATCHED_AGENT`."""

from __future__ import annotations

import os
from typing import Any

from tests.matrix.around.agents import AGENTS

agent = AGENTS[os.environ["WATCHED_AGENT"]]()
agent.start()

from celery import Celery  # noqa: E402 - agents replace parts of it as it is imported

from celeriac import Celeriac  # noqa: E402


def make(which: str) -> Any:
    if which == "stock":
        return Celery("watched", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"])
    return Celeriac("watched")


app = make(os.environ["WATCHED_CELERY"])


@app.task(name="watched.work", shared=False)
def work(x: int) -> int:
    follow.delay(x)
    return x + 1


@app.task(name="watched.follow", shared=False)
def follow(x: int) -> int:
    return x


@app.task(name="watched.fail", shared=False)
def fail() -> None:
    raise KeyError("lost")


def send() -> None:
    """As a web request does."""
    with agent.request():
        work.delay(1)
        fail.delay()


if __name__ == "__main__":
    from tests.matrix.around import watched

    watched.send()
