"""A read-only model of tasks. Fields are named as in django-celery-results."""

from __future__ import annotations

from typing import Any

from django.db import models

from celeriac.contrib.django.databases import usual_alias
from celeriac.errors import IllegalMove

_ONLY_READ = "a task's row is the engine's: cancel, retry and edit by `manage.py celeriac`, the API or the dashboard"


def _refuse(*_: Any, **__: Any) -> Any:
    """Refuse: raises IllegalMove."""
    raise IllegalMove(_ONLY_READ)


class _Rows(models.QuerySet):
    bulk_create = bulk_update = update = delete = _refuse


class _Tasks(models.Manager):
    bulk_create = bulk_update = update = _refuse

    def get_queryset(self) -> Any:
        return _Rows(self.model, using=usual_alias())


class Task(models.Model):
    """A row of `worker_tasks`: a task that waits, runs, or has finished and is kept."""

    id = models.BigIntegerField(primary_key=True)
    task_id = models.TextField()
    task_name = models.TextField("role", db_column="role")
    queue = models.TextField(null=True)
    account = models.TextField()
    lock_key = models.TextField(null=True)
    unique_key = models.TextField(null=True)
    status = models.TextField()
    waits_for = models.TextField(null=True)
    priority = models.IntegerField()
    scheduled_for = models.DateTimeField(null=True)
    task_args = models.JSONField("arguments", db_column="args")
    task_kwargs = models.JSONField("keyword arguments", db_column="kwargs")
    worker = models.TextField(db_column="worker_id", null=True)
    date_created = models.DateTimeField("enqueued", db_column="created_at")
    date_started = models.DateTimeField("started", db_column="started_at", null=True)
    date_done = models.DateTimeField("ended", db_column="completed_at", null=True)
    result = models.JSONField(null=True)
    error_message = models.TextField("error", null=True)
    retry_count = models.IntegerField()
    enqueued_by = models.TextField(null=True)

    objects = _Tasks()

    class Meta:
        managed = False
        db_table = '"celeriac"."worker_tasks"'
        ordering = ("-id",)
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.task_name} {self.task_id}"

    save = delete = _refuse
