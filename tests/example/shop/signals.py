"""What the shop does around every task of its own."""

from __future__ import annotations

from celery import signals

from shop import journal


def ours(name):
    return name.startswith("shop.")


@signals.worker_process_init.connect
def open_shop(**_):
    journal.write("worker_process_init")


@signals.before_task_publish.connect
def publishing(sender, body, headers, **_):
    if ours(sender):
        journal.write("before_task_publish", id=headers["id"], task=sender, args=list(body[0]))


@signals.task_prerun.connect
def begin(task_id, task, args, **_):
    if ours(task.name):
        journal.write("task_prerun", id=task_id, task=task.name, args=list(args))


@signals.task_postrun.connect
def end(task_id, task, state, **_):
    if ours(task.name):
        journal.write("task_postrun", id=task_id, state=state)


@signals.task_success.connect
def succeeded(sender, result, **_):
    if ours(sender.name):
        journal.write("task_success", id=sender.request.id, result=result)


@signals.task_failure.connect
def failed(sender, task_id, exception, **_):
    if ours(sender.name):
        journal.write("task_failure", id=task_id, error=repr(exception))


@signals.task_revoked.connect
def revoked(request, terminated, expired, **_):
    if ours(request.task if isinstance(request.task, str) else request.task.name):
        journal.write("task_revoked", id=request.id, terminated=bool(terminated), expired=bool(expired))
