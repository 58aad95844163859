"""Tasks, settings and signals as ordinary Celery code has them; `SEVENTY_CELERY` says which class the app is of."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

import redis
from celery import Task, group, shared_task, signals
from celery.contrib.abortable import AbortableTask
from celery.exceptions import Ignore, SoftTimeLimitExceeded
from celery.schedules import crontab

if os.environ["SEVENTY_CELERY"] == "stock":
    from celery import Celery as App
else:
    from celeriac import Celeriac as App

app: Any = App("seventy", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"])
app.conf.update(
    timezone="Europe/Berlin",
    task_track_started=True,
    result_extended=True,
    result_expires=3600,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    task_routes={"seventy.reports.*": {"queue": "reports"}},
    task_annotations={"seventy.annotated": {"default_retry_delay": 7}},
    beat_schedule={
        "tick": {"task": "seventy.tick", "schedule": timedelta(seconds=1), "args": ("beat",)},
        "nightly": {"task": "seventy.add", "schedule": crontab(hour=3, minute=0), "args": (1, 2)},
    },
)


def notes() -> Any:
    return redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)


def note(key: str, value: object = 1) -> None:
    with notes() as client:
        client.rpush(f"notes:{key}", str(value))


class Shop(Exception):
    """An error of the code base's own."""

    def __init__(self, item: str, stock: int) -> None:
        super().__init__(item, stock)
        self.item, self.stock = item, stock


class Resource(Task):
    """A base class that keeps something, and notes how its tasks end."""

    abstract = True
    _opened: Any = None

    @property
    def opened(self) -> str:
        if self._opened is None:
            self._opened = "opened"
        return str(self._opened)

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        note(f"{task_id}:on_success", retval)

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note(f"{task_id}:on_failure", repr(exc))

    def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note(f"{task_id}:after_return", status)


class Doubling(Task):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return 2 * super().__call__(*args, **kwargs)


@app.task
def unnamed(x: int) -> int:
    return x


@app.task(name="seventy.add")
def add(x: int, y: int) -> int:
    return x + y


@shared_task(name="seventy.shared")
def shared(x: int = 3, *, times: int = 2) -> int:
    return x * times


@app.task(name="seventy.bound", bind=True)
def bound(self: Any, x: int) -> dict[str, Any]:
    request = self.request
    return {
        "x": x, "name": self.name, "id": request.id == self.request.id, "retries": request.retries,
        "called_directly": request.called_directly, "is_eager": request.is_eager,
    }  # fmt: skip


@app.task(name="seventy.request", bind=True)
def request_of(self: Any, *names: str) -> list[Any]:
    return [getattr(self.request, name, None) for name in names]


@app.task(name="seventy.delivery", bind=True)
def delivery(self: Any, name: str) -> Any:
    return self.request.delivery_info[name]


@app.task(name="seventy.reports.monthly", bind=True)
def monthly(self: Any) -> Any:
    return self.request.delivery_info["routing_key"]


@app.task(name="seventy.resource", base=Resource, bind=True)
def resource(self: Any, *, fail: bool = False) -> str:
    if fail:
        raise KeyError("asked to")
    return str(self.opened)


@app.task(name="seventy.doubled", base=Doubling)
def doubled(x: int) -> int:
    return x


class Counting(app.Task):  # type: ignore[misc, name-defined]
    name = "seventy.counting"

    def run(self, words: str) -> int:
        return len(words.split())


counting = app.register_task(Counting())


@app.task(name="seventy.annotated")
def annotated() -> None: ...


@app.task(name="seventy.silent", ignore_result=True)
def silent() -> str:
    return "not kept"


@app.task(name="seventy.echo")
def echo(*values: Any) -> list[Any]:
    return [*values, *(type(value).__name__ for value in values)]


@app.task(name="seventy.now")
def now() -> float:
    return time.time()


@app.task(name="seventy.tick")
def tick(who: str) -> None:
    note(f"tick:{who}")


@app.task(name="seventy.fail")
def fail(message: str = "boom") -> None:
    raise ValueError(message)


@app.task(name="seventy.shop_error")
def shop_error() -> None:
    raise Shop("apple", 3)


@app.task(name="seventy.errback")
def errback(request: Any, exc: Any, traceback: Any) -> None:
    note(f"{request.id}:errback", repr(exc))


@app.task(name="seventy.noted")
def noted(value: Any, key: str) -> Any:
    note(key, value)
    return value


@app.task(name="seventy.patient", bind=True, max_retries=5, default_retry_delay=0)
def patient(self: Any, times: int) -> int:
    if self.request.retries < times:
        raise self.retry()
    return int(self.request.retries)


@app.task(name="seventy.other_arguments", bind=True, default_retry_delay=0)
def other_arguments(self: Any, left: int) -> int:
    if left:
        raise self.retry(args=(left - 1,))
    return int(self.request.retries)


@app.task(name="seventy.stubborn", bind=True, max_retries=1, default_retry_delay=0)
def stubborn(self: Any, with_error: bool) -> None:
    try:
        raise ConnectionError("no line")
    except ConnectionError as error:
        raise self.retry(exc=error if with_error else None) from None


@app.task(
    name="seventy.auto", bind=True, autoretry_for=(ConnectionError,), max_retries=2, retry_backoff=False,
    default_retry_delay=0,
)  # fmt: skip
def auto(self: Any) -> None:
    note(f"{self.request.id}:auto")
    raise ConnectionError("no line")


@app.task(name="seventy.slow", bind=True, base=AbortableTask)
def slow(self: Any, seconds: float = 30.0) -> str:
    self.update_state(state="PROGRESS", meta={"done": 1})
    ends = time.monotonic() + seconds
    try:
        while time.monotonic() < ends and not self.is_aborted():
            time.sleep(0.05)
    except SoftTimeLimitExceeded:
        return "soft"
    return "aborted" if self.is_aborted() else "slept"


@app.task(name="seventy.stuck")
def stuck() -> None:
    while True:
        try:
            time.sleep(60)
        except SoftTimeLimitExceeded:
            continue


@app.task(name="seventy.skipped", bind=True)
def skipped(self: Any) -> None:
    self.update_state(state="SKIPPED")
    raise Ignore


@app.task(name="seventy.total")
def total(values: list[int]) -> int:
    return sum(values)


@app.task(name="seventy.replaced", bind=True)
def replaced(self: Any, x: int) -> Any:
    return self.replace(group(add.si(x, n) for n in range(3)) | total.s())


@app.task(name="seventy.sends", bind=True)
def sends(self: Any) -> str:
    return str(add.delay(20, 22).id)


@signals.task_prerun.connect
def _prerun(task_id: str, task: Any, **_: Any) -> None:
    if task.name == "seventy.resource":
        note(f"{task_id}:signals", "prerun")


@signals.task_postrun.connect
def _postrun(task_id: str, task: Any, state: str, **_: Any) -> None:
    if task.name == "seventy.resource":
        note(f"{task_id}:signals", f"postrun {state}")


@signals.task_success.connect
def _success(sender: Any, result: Any, **_: Any) -> None:
    if sender.name == "seventy.resource":
        note(f"{sender.request.id}:signals", f"success {result}")


@signals.task_failure.connect
def _failure(sender: Any, task_id: str, exception: Any, **_: Any) -> None:
    if sender.name == "seventy.resource":
        note(f"{task_id}:signals", f"failure {exception!r}")


@signals.task_retry.connect
def _retried(sender: Any, request: Any, reason: Any, **_: Any) -> None:
    if sender.name == "seventy.patient":
        note(f"{request.id}:retries")
