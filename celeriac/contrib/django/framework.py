"""Django's tasks framework: `django.tasks` since Django 6.0, or the package django-tasks for earlier releases."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from celeriac.errors import ConfigurationError

#: The installed package of the framework; Django's own is preferred.
PACKAGE = next((name for name in ("django.tasks", "django_tasks") if find_spec(name)), None)

if PACKAGE is None:
    raise ConfigurationError(
        "celeriac.contrib.django.Backend needs django.tasks: use Django 6.0 or later, or pip install django-tasks and "
        'put "django_tasks" into INSTALLED_APPS'
    )

_package: Any = import_module(PACKAGE)
_base: Any = import_module(f"{PACKAGE}.base")
_exceptions: Any = import_module(f"{PACKAGE}.exceptions")

#: The module with the signals `task_enqueued`, `task_started` and `task_finished`.
signals: Any = import_module(f"{PACKAGE}.signals")

#: The bounds of a task's priority.
LOWEST, HIGHEST = _base.TASK_MIN_PRIORITY, _base.TASK_MAX_PRIORITY

Task, TaskError = _base.Task, _base.TaskError
TaskContext, TaskResult, TaskResultStatus = _package.TaskContext, _package.TaskResult, _package.TaskResultStatus
BaseTaskBackend: Any = import_module(f"{PACKAGE}.backends.base").BaseTaskBackend

if PACKAGE == "django.tasks":
    InvalidTask: Any = _exceptions.InvalidTask
    normalize_json: Any = import_module("django.utils.json").normalize_json
else:
    InvalidTask = _exceptions.InvalidTaskError
    normalize_json = import_module("django_tasks.utils").normalize_json

TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
TaskResultMismatch: Any = _exceptions.TaskResultMismatch
