"""An app configured as for plain Celery, Django's way; only its class is ours."""

from __future__ import annotations

import os
from types import SimpleNamespace

from celeriac import Celeriac as Celery

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
