"""Settings as a Django project has them; those of Celery begin with CELERY_."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from celery.schedules import crontab

HOME = Path(os.environ.get("SHOP_HOME", "."))

CELERY_BROKER_URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
CELERY_RESULT_BACKEND = CELERY_BROKER_URL
CELERY_RESULT_EXPIRES = timedelta(hours=1)
CELERY_RESULT_EXTENDED = True
CELERY_TIMEZONE = "Europe/Berlin"

CELERY_TASK_SERIALIZER = "json"
CELERY_RESULT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_TRACK_STARTED = True
CELERY_TASK_TIME_LIMIT = 60
CELERY_TASK_SOFT_TIME_LIMIT = 50
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_ANNOTATIONS = {"shop.mails.tasks.send_mail": {"rate_limit": "100/s"}}

CELERY_TASK_DEFAULT_QUEUE = "shop"
CELERY_TASK_ROUTES = {
    "shop.mails.tasks.*": {"queue": "mails"},
    "shop.reports.tasks.*": {"queue": "reports"},
}

CELERY_BEAT_SCHEDULE = {
    "pulse": {
        "task": "shop.reports.tasks.pulse",
        "schedule": timedelta(seconds=1),
        "kwargs": {"of": "beat"},
        "options": {"expires": 30},
    },
    "close the day": {
        "task": "shop.reports.tasks.close_day",
        "schedule": crontab(hour=3, minute=30),
        "args": ("yesterday",),
    },
}
