"""The tasks in Django's admin: to be read."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from celeriac.contrib.django.models import Task


@admin.register(Task)
class TaskAdmin(admin.ModelAdmin):
    """Whoever has the permission `celeriac.view_task` sees lists and pages. Nobody adds, changes or deletes here."""

    list_display = ("task_id", "task_name", "status", "account", "worker", "date_created", "date_done")
    search_fields = ("=task_id", "=account", "=lock_key")
    list_filter = ("status",)
    show_full_result_count = False

    def has_add_permission(self, *_: Any) -> bool:
        return False

    def has_change_permission(self, *_: Any) -> bool:
        return False

    def has_delete_permission(self, *_: Any) -> bool:
        return False
