"""An app configured as for plain Celery, Django's way; only its class is ours."""

from __future__ import annotations

import os
from types import SimpleNamespace

from celery import Task, shared_task

from celeriac import Celeriac as Celery
from tests.deploy.written import of

app = Celery("configured", backend="redis://nowhere.invalid/1", broker=os.environ.get("REDIS_URL"))
app.config_from_object(
    SimpleNamespace(
        CELERY_ACCEPT_CONTENT=["pickle"],
        CELERY_TASK_SERIALIZER="pickle",
        CELERY_RESULT_SERIALIZER="pickle",
        CELERY_TASK_ACKS_LATE=True,
        CELERY_WORKER_CONCURRENCY=1,
        CELERY_WORKER_PREFETCH_MULTIPLIER=4,
        CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS=True,
        CELERY_BROKER_TRANSPORT_OPTIONS={"visibility_timeout": 3600, "priority_steps": [0, 3, 6, 9]},
    ),
    namespace="CELERY",
)


@app.task
def double(n):
    if n < 0:
        raise ValueError(n)
    return 2 * n


@shared_task(role="configured.shared", bind=True, autoretry_for=(ConnectionError,), max_retries=2, retry_backoff=0.05)
def shared(self, n):
    if self.request.retries < 2:
        raise ConnectionError
    return [n, self.request.retries]


class Flaky(Task):
    """A class task of Celery's own base, with options of a role and of Celery's."""

    name = "configured.flaky"
    unique_by = "n"
    autoretry_for = (ConnectionError,)
    retry_kwargs = {"max_retries": 2, "countdown": 0.05}  # noqa: RUF012
    backend = "redis://nowhere.invalid/2"

    def run(self, n):
        if self.request.retries < 2:
            raise ConnectionError
        return [n, self.request.retries]


flaky = app.register_task(Flaky())

#: Types and a task of the page about coming from Celery.
(page,) = of("docs/coming-from-celery.md", "python")
written = {"__name__": "shop", "app": app}
exec(compile(page.text, str(page.page), "exec", dont_inherit=True), written)
