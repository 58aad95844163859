"""An ordinary Celery module; only the app's class is ours."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime

from celery import Task, signals
from celery.exceptions import Ignore, Reject
from sqlalchemy import text

from celeriac import Celeriac as Celery

app = Celery("ordinary")
app.conf.task_routes = {"ordinary.shunt*": {"queue": "sidings"}}


def note(what: str, **more: object) -> None:
    with app.database.statement() as connection:
        connection.execute(
            text("INSERT INTO ran (task_id, role, pid, what) VALUES (:what, 'note', :pid, :more)"),
            {"what": what, "pid": os.getpid(), "more": json.dumps(more, default=str)},
        )


class Noting(Task):
    """A custom Task class with hooks."""

    def before_start(self, task_id, args, kwargs):
        note("before_start", args=args, kwargs=kwargs)

    def on_success(self, retval, task_id, args, kwargs):
        note("on_success", retval=retval)

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        note("on_failure", exc=repr(exc), args=args)

    def on_retry(self, exc, task_id, args, kwargs, einfo):
        note("on_retry", exc=repr(exc))

    def after_return(self, status, retval, task_id, args, kwargs, einfo):
        note("after_return", status=status)

    def greet(self):
        return f"hello from {self.name}"


@signals.task_success.connect
def succeeded(sender, result, **_):
    if sender.name.startswith("ordinary."):
        note("task_success", sender=sender.name, result=result)


@signals.task_failure.connect
def failed(sender, exception, **_):
    note("task_failure", sender=sender.name, exception=repr(exception))


@signals.task_retry.connect
def retried(sender, reason, **_):
    note("task_retry", sender=sender.name, reason=str(reason))


@signals.before_task_publish.connect
def publishing(sender, headers, **_):
    if sender.startswith("ordinary."):
        headers.setdefault("stamped", "no")


@app.task(name="ordinary.hooked", base=Noting, bind=True)
def hooked(self, x, fail=False):
    if fail:
        raise KeyError("asked to")
    return {"x": x, "greeting": self.greet(), "id": self.request.id, "retries": self.request.retries}


@app.task(name="ordinary.auto", autoretry_for=(ConnectionError,), max_retries=2, default_retry_delay=0.05)
def auto():
    note("auto")
    raise ConnectionError("down")


@app.task(name="ordinary.manual", base=Noting, bind=True, max_retries=3)
def manual(self, left):
    if left:
        raise self.retry(exc=ValueError(f"{left} left"), countdown=0.05, kwargs={"left": left - 1}, args=())
    return self.request.retries


@app.task(name="ordinary.when")
def when(at):
    assert isinstance(at, datetime)
    return at


@app.task(name="ordinary.ignoring")
def ignoring():
    raise Ignore


@app.task(name="ordinary.rejecting")
def rejecting():
    raise Reject("no", requeue=False)


@app.task(name="ordinary.replaced", bind=True)
def replaced(self):
    raise self.replace(unnamed.s(1))


@app.task(name="ordinary.shunted")
def shunted(x):
    return x


@app.task
def unnamed(*args, **kwargs):
    return [list(args), kwargs]


class Classy(app.Task):
    name = "ordinary.classy"

    def run(self, a, b):
        return a * b


classy = app.register_task(Classy())


@signals.task_revoked.connect
def revoked(sender, request, terminated, expired, **_):
    note("task_revoked", sender=sender.name, id=request.id, terminated=terminated, expired=expired)


@app.task(name="ordinary.waiting")
def waiting():
    time.sleep(30)
