"""The tasks in Django's admin, read-only."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.utils.html import format_html

from celeriac.contrib.django.databases import celeriac_app
from celeriac.contrib.django.models import Task
from celeriac.insights.tasks import redaction

#: Columns of a row that may contain secrets, with the model's fields for them.
_FIELDS = {"args": "task_args", "kwargs": "task_kwargs", "result": "result", "error_message": "error_message"}


@admin.register(Task)
class TaskAdmin(admin.ModelAdmin):
    """The admin pages. Users with the permission `celeriac.view_task` see lists and tasks; nobody can change any."""

    list_display = ("task_id", "task_name", "status", "account", "worker", "date_created", "date_done")
    search_fields = ("=task_id", "=account", "=lock_key")
    list_filter = ("status",)
    show_full_result_count = False

    def get_list_display(self, request: Any) -> Any:
        return (*super().get_list_display(request), *self._linked())

    def get_readonly_fields(self, request: Any, obj: Any = None) -> Any:
        return (*super().get_readonly_fields(request, obj), *self._linked())

    def _linked(self) -> tuple[str, ...]:
        return ("in_dashboard",) if getattr(settings, "CELERIAC_DASHBOARD", None) else ()

    @admin.display(description="dashboard")
    def in_dashboard(self, task: Task) -> str:
        """Return a link to the task's page in the dashboard, whose address CELERIAC_DASHBOARD names."""
        address = f"{settings.CELERIAC_DASHBOARD.rstrip('/')}/tasks/{task.pk}"
        return str(format_html('<a href="{}">{}</a>', address, task.pk))

    def get_object(self, *arguments: Any, **options: Any) -> Any:
        """Return the task, with the arguments masked that its role declares sensitive."""
        task, app = super().get_object(*arguments, **options), celeriac_app()
        if task is None or app is None:
            return task
        with app.database.reading() as connection:
            secret = redaction.of_roles(connection, [task.task_name]).get(task.task_name)
        shown = redaction.redacted({name: getattr(task, field) for name, field in _FIELDS.items()}, secret)
        for name, field in _FIELDS.items():
            setattr(task, field, shown[name])
        return task

    def has_add_permission(self, *_: Any) -> bool:
        return False

    def has_change_permission(self, *_: Any) -> bool:
        return False

    def has_delete_permission(self, *_: Any) -> bool:
        return False
